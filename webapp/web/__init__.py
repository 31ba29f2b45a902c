"""Pages and fragments, guards, filters, jobs: what every page shares."""
