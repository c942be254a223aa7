"""Commands that decide or simulate allocation for jobs in files: alloc, place, route, advise, simulate."""
