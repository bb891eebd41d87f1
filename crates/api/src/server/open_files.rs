//! How many files this process may have open, sockets included.

/// Open files that are kept for the store and for webhooks: half of a small limit, and this many of
/// a large one.
const RESERVED: usize = 1_536;

/// How many connections fit into the limit of open files; none if the limit is unknown.
pub(super) fn room_for_connections() -> Option<usize> {
    limit().map(beside_the_rest)
}

/// How many files this process may have open; none if that is unknown.
pub fn limit() -> Option<usize> {
    // The file exists on Linux only; elsewhere the configured numbers stand.
    soft_limit(&std::fs::read_to_string("/proc/self/limits").ok()?)
}

fn soft_limit(limits: &str) -> Option<usize> {
    limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?.parse().ok()
}

fn beside_the_rest(limit: usize) -> usize {
    limit - RESERVED.min(limit / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_found_among_the_others() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max processes             63704                63704                processes \n\
                      Max open files            1024                 524288               files     \n";
        assert_eq!(soft_limit(limits), Some(1_024));
        assert_eq!(soft_limit("Max open files            unlimited            unlimited            files"), None);
        assert_eq!(soft_limit(""), None);
    }

    #[test]
    fn some_files_are_always_left_for_the_rest() {
        assert_eq!((beside_the_rest(256), beside_the_rest(1_024), beside_the_rest(65_536)), (128, 512, 64_000));
    }
}
