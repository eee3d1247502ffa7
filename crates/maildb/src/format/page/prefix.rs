//! Choosing the shared key prefix of a page.

use super::{PREFIX_OVERHEAD_BYTES, common_prefix_bytes};

/// Number of keys tried as the prefix.
const CANDIDATES_MAX: usize = 8;

/// The prefix that minimises the space of `keys`, which must be ascending; empty if none saves space. A node
/// uses as much of the prefix as its key shares.
pub fn choose_prefix(keys: &[&[u8]]) -> Vec<u8> {
    let mut best: &[u8] = &[];
    let mut best_saved_bytes = 0;
    for candidate in keys.iter().step_by(keys.len().div_ceil(CANDIDATES_MAX).max(1)) {
        let (mut used, mut saved_bytes) = (0, 0);
        for key in keys {
            let common = common_prefix_bytes(candidate, key);
            // The candidate's own key always shares all of it: the other keys decide its length.
            if common > PREFIX_OVERHEAD_BYTES && !std::ptr::eq(*key, *candidate) {
                saved_bytes += common - PREFIX_OVERHEAD_BYTES;
                used = used.max(common);
            }
        }
        if used > PREFIX_OVERHEAD_BYTES {
            saved_bytes += used - PREFIX_OVERHEAD_BYTES;
        }
        let saved_bytes = saved_bytes.saturating_sub(used);
        if saved_bytes > best_saved_bytes {
            (best, best_saved_bytes) = (&candidate[..used], saved_bytes);
        }
    }
    best.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_little_in_common_get_no_prefix() {
        assert_eq!(choose_prefix(&[]), b"");
        assert_eq!(choose_prefix(&[b"only"]), b"");
        assert_eq!(choose_prefix(&[b"ab1", b"ab2", b"ab3"]), b"");
    }

    #[test]
    fn the_prefix_is_what_most_keys_share() {
        let keys: [&[u8]; 4] = [b"folder1/a", b"folder1/b", b"folder1/c", b"other"];
        assert_eq!(choose_prefix(&keys), b"folder1/");
    }
}
