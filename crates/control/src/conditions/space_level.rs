//! Levels of a pool's use, with hysteresis.

/// A level begins at its percentage.
const LEVELS: [(&str, u64); 3] = [("space_95", 95), ("space_90", 90), ("space_80", 80)];
/// It ends this much below.
const HYSTERESIS_PERCENT: u64 = 2;

/// The kind for a pool of this use, whose condition has the kind `open` now.
pub(super) fn space_kind(used: u64, usable: u64, open: Option<&str>) -> Option<&'static str> {
    if usable == 0 {
        return None;
    }
    let reaches = |percent: u64| u128::from(used) * 100 >= u128::from(usable) * u128::from(percent);
    let open_at = LEVELS.iter().position(|(kind, _)| Some(*kind) == open);
    LEVELS
        .iter()
        .enumerate()
        .find(|(index, (_, percent))| {
            // The levels below the open one are open, too.
            let is_open = open_at.is_some_and(|open| open <= *index);
            reaches(if is_open { percent - HYSTERESIS_PERCENT } else { *percent })
        })
        .map(|(_, (kind, _))| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_moves_about_a_level_is_said_once() {
        let mut open = None;
        let mut seen = Vec::new();
        for used in [79, 80, 79, 80, 79, 78, 77, 80, 91, 89, 88, 87, 96, 94, 93, 92, 79, 77] {
            let kind = space_kind(used, 100, open);
            if kind != open {
                seen.push((used, kind));
            }
            open = kind;
        }
        let expected = [
            (80, Some("space_80")),
            (77, None),
            (80, Some("space_80")),
            (91, Some("space_90")),
            (87, Some("space_80")),
            (96, Some("space_95")),
            (92, Some("space_90")),
            (79, Some("space_80")),
            (77, None),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_pool_without_room_has_no_level() {
        assert_eq!(space_kind(0, 0, None), None);
        assert_eq!(space_kind(u64::MAX, u64::MAX, None), Some("space_95"));
    }
}
