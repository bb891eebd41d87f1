//! Disks that fail, fill up, stall, or come back damaged.
//!
//! The faults are real as far as the server can see. `strace` makes its system calls fail or take
//! long, a file system of a few megabytes fills up, and files change behind its back. The same must
//! always hold: no false acknowledgement, a clear answer or a clear end, and afterwards an intact
//! database with an exact account of the tasks.

mod audit;
mod damaged;
mod full;
mod inject;
mod script;
mod small_disk;
mod stalled;
mod sweep;
