SELECT count(*) FROM probe
