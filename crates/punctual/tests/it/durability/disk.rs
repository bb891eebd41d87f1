//! Disks that fail, fill up, stall, or come back damaged.
//!
//! The faults are real ones as far as the server can tell: `strace` makes its system calls
//! fail or take their time, a file system of a few megabytes fills up, and files are changed
//! behind its back. What must hold is always the same: no false acknowledgement, a clear
//! answer or a clear end, and afterwards a whole database with an exact account of the tasks.

mod audit;
mod damaged;
mod full;
mod inject;
mod script;
mod small_disk;
mod stalled;
mod sweep;
