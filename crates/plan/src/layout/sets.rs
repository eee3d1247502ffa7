//! Sets of drives within a group that bound what one failure reaches.

/// Drives of a set that a group is best divided into, and bounds (HP EVA8000, "VRAID comparison results": sets of 6 to 11).
const BEST: u32 = 8;
const LEAST: u32 = 6;
const MOST: u32 = 11;

/// `drives` divided into failure sets of 6 to 11, as even as they come; a group of fewer is one set.
pub fn failure_sets(drives: u32) -> Vec<u32> {
    if drives == 0 {
        return Vec::new();
    }
    let count = ((drives + BEST / 2) / BEST).max(1);
    let set = |index: u32| drives / count + u32::from(index < drives % count);
    let sets: Vec<u32> = (0..count).map(set).collect();
    assert_eq!(sets.iter().sum::<u32>(), drives, "every drive is in one set");
    assert!(drives < LEAST || sets.iter().all(|set| (LEAST..=MOST).contains(set)), "{drives}: {sets:?}");
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_6_to_11_drives_whatever_the_group() {
        for drives in 0..2_000 {
            let _ = failure_sets(drives);
        }
        assert_eq!(failure_sets(88), [8; 11]);
        assert_eq!(failure_sets(11), [11]);
        assert_eq!(failure_sets(37), [8, 8, 7, 7, 7]);
        assert_eq!(failure_sets(2), [2]);
    }
}
