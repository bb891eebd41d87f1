//! Acknowledged tasks are kept: through `kill -9`, through SIGTERM, and through a second server
//! that tries to start.

mod crash;
mod disk;
mod shutdown;
mod start;
