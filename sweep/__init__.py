"""The experiment: from one YAML file to dense run, masks, tickets and report. Never asks where it runs."""
