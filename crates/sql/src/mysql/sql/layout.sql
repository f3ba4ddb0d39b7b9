INSERT IGNORE INTO {meta} (name, value) VALUES ('layout', 1)
