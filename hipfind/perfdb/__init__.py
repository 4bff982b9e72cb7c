"""The perf DB: what Find and tuning measured, in one sqlite file a user. Knows problems and targets, no device."""
