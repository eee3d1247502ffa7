//! Free space of the device and its allocation to growing files.

use super::table::{DATA_START, Extent, UNIT};

/// The free extents between `taken` ones, from `DATA_START` to `end`.
pub(super) fn gaps(taken: impl IntoIterator<Item = Extent>, end: u64) -> Vec<Extent> {
    let mut taken: Vec<Extent> = taken.into_iter().collect();
    taken.sort();
    let mut free_from = DATA_START;
    let mut gaps = Vec::new();
    for extent in taken {
        assert!(extent.start >= free_from, "two files hold the same bytes: {extent:?}");
        if extent.start > free_from {
            gaps.push(Extent { start: free_from, length: extent.start - free_from });
        }
        free_from = extent.end();
    }
    assert!(free_from <= end, "a file lies beyond the device");
    // A remainder at the end that is no whole unit is never allocated.
    let left = (end - free_from) / UNIT * UNIT;
    if left > 0 {
        gaps.push(Extent { start: free_from, length: left });
    }
    gaps
}

/// Allocates `need` bytes from `gaps` for a file that ends at `after`: contiguously as far as possible, then
/// the first gap that holds the rest, then the largest gaps. `None` if the space does not suffice.
pub(super) fn pick(mut gaps: Vec<Extent>, after: Option<u64>, need: u64) -> Option<Vec<Extent>> {
    assert_eq!(need % UNIT, 0, "space is allocated in whole units");
    let mut need = need;
    let mut picked = Vec::new();
    let mut take = |gap: &mut Extent, need: &mut u64| {
        let length = gap.length.min(*need);
        if length > 0 {
            picked.push(Extent { start: gap.start, length });
            *gap = Extent { start: gap.start + length, length: gap.length - length };
            *need -= length;
        }
    };
    if let Some(behind) = gaps.iter_mut().find(|gap| Some(gap.start) == after) {
        take(behind, &mut need);
    }
    if let Some(fitting) = gaps.iter_mut().find(|gap| gap.length >= need) {
        take(fitting, &mut need);
    } else {
        gaps.sort_by_key(|gap| (u64::MAX - gap.length, gap.start));
        for gap in &mut gaps {
            take(gap, &mut need);
        }
    }
    (need == 0).then_some(picked)
}

/// Appends extents to a file and merges neighbours.
pub(super) fn append(extents: &mut Vec<Extent>, added: &[Extent]) {
    for &extent in added {
        match extents.last_mut() {
            Some(last) if last.end() == extent.start => last.length += extent.length,
            _ => extents.push(extent),
        }
    }
}

/// Truncates a file's extents to `held` bytes and returns the freed extents.
pub(super) fn cut(extents: &mut Vec<Extent>, held: u64) -> Vec<Extent> {
    assert_eq!(held % UNIT, 0, "space is held in whole units");
    let mut kept = 0;
    let mut freed = Vec::new();
    extents.retain_mut(|extent| {
        let keep = extent.length.min(held - kept);
        kept += keep;
        if keep < extent.length {
            freed.push(Extent { start: extent.start + keep, length: extent.length - keep });
            extent.length = keep;
        }
        keep > 0
    });
    freed
}

/// The device extents that hold `length` bytes of a file from `at` on.
pub(super) fn pieces(extents: &[Extent], at: u64, length: u64) -> Vec<Extent> {
    let (mut skip, mut left) = (at, length);
    let mut pieces = Vec::new();
    for extent in extents {
        if skip >= extent.length {
            skip -= extent.length;
            continue;
        }
        let taken = left.min(extent.length - skip);
        if taken == 0 {
            break;
        }
        pieces.push(Extent { start: extent.start + skip, length: taken });
        left -= taken;
        skip = 0;
    }
    assert_eq!(left, 0, "a range within the file lies within its extents");
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(index: u64, count: u64) -> Extent {
        Extent { start: DATA_START + index * UNIT, length: count * UNIT }
    }

    #[test]
    fn a_file_grows_behind_itself_then_into_the_first_gap_that_fits_then_into_the_largest() {
        let end = DATA_START + 100 * UNIT + 512;
        let taken = [unit(0, 2), unit(4, 1), unit(10, 80)];
        let free = gaps(taken, end);
        assert_eq!(free, [unit(2, 2), unit(5, 5), unit(90, 10)]);
        let after = Some(DATA_START + 2 * UNIT);
        assert_eq!(pick(free.clone(), after, 2 * UNIT), Some(vec![unit(2, 2)]));
        assert_eq!(pick(free.clone(), after, 4 * UNIT), Some(vec![unit(2, 2), unit(5, 2)]));
        assert_eq!(pick(free.clone(), None, 6 * UNIT), Some(vec![unit(90, 6)]));
        assert_eq!(pick(free.clone(), None, 16 * UNIT), Some(vec![unit(90, 10), unit(5, 5), unit(2, 1)]));
        assert_eq!(pick(free, None, 18 * UNIT), None);
    }

    #[test]
    fn cutting_and_appending_are_inverse() {
        let whole = vec![unit(3, 4), unit(9, 2), unit(0, 1)];
        for held in 0..=7 {
            let mut extents = whole.clone();
            let freed = cut(&mut extents, held * UNIT);
            assert_eq!(extents.iter().map(|extent| extent.length).sum::<u64>(), held * UNIT);
            append(&mut extents, &freed);
            assert_eq!(extents, whole);
        }
    }

    #[test]
    fn a_range_maps_to_its_extents() {
        let extents = [unit(3, 1), unit(9, 2)];
        assert_eq!(pieces(&extents, 0, UNIT), [unit(3, 1)]);
        let split = pieces(&extents, UNIT - 512, 1024);
        assert_eq!(split.iter().map(|piece| piece.length).collect::<Vec<_>>(), [512, 512]);
        assert_eq!(split[1].start, unit(9, 2).start);
        assert!(pieces(&extents, 3 * UNIT, 0).is_empty());
    }
}
