"""The study orchestrator: plan, engine, journal, tracking. See docs/architecture.md."""
