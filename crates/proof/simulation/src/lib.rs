//! Clients, a server and a network between them that delays, loses and restarts, in one thread and by a seed. All of it
//! is a test: see `tests/simulation`.
