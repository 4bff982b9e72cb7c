"""Why was this solver chosen? Every solver's answer for one problem, without running anything."""

import hipfind as hf

command = "./bin/MIOpenDriver convfp16 -n 4 -c 64 -H 56 -W 56 -k 256 -y 1 -x 1 -p 0 -q 0 -u 1 -v 1 -m conv -F 1 -t 1"
(problem,) = hf.ConvProblem.from_driver_command(command)
print(problem.key())
for one in hf.explain(problem):
    if one.applicable:
        print(f"{one.solver_id}: expected {one.expected_ms:.3f} ms, WTI {one.wti:.2f}, {one.workspace_bytes} bytes")
    else:
        print(f"{one.solver_id}: no, {one.reason}")
