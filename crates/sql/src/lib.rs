//! Locks in a SQL table.
