//! Pivots: keys of history, derived from the lifetimes of versions.
//!
//! History stores lifetimes, which are intervals of stamps, and answers which of them contain a given point.
//! So it is an interval tree, laid out in keys. All stamps are the nodes of a binary tree, in order; a
//! stamp's height is the number of times two divides it. The *pivot* of a lifetime is the highest stamp in
//! it. (The relational interval tree: H.-P. Kriegel, M. Pötke, T. Seidl, "Managing Intervals Efficiently in
//! Object-Relational Databases", VLDB 2000; its fork node.)
//!
//! 1. A lifetime has one pivot, which lies in it.
//! 2. Lifetimes of one block do not overlap, so no two of a block have the same pivot.
//! 3. The pivot of every lifetime that contains a stamp is that stamp, or one of its ancestors: 64 at most.

use super::units::Stamp;

/// The pivot of a lifetime that ends before `death`.
///
/// # Panics
///
/// If the lifetime is empty, or begins at 0: nothing is that old.
#[inline]
pub fn pivot_of(birth: Stamp, death: Stamp) -> Stamp {
    assert!(0 < birth.0 && birth < death, "a life from {birth} to {death}");
    let last = death.0 - 1;
    let height = ((birth.0 - 1) ^ last).ilog2();
    Stamp(last >> height << height)
}

/// A stamp and its ancestors in the tree, the nearest first.
pub fn pivots_above(stamp: Stamp) -> impl Iterator<Item = Stamp> {
    assert!(stamp.0 > 0, "stamps begin at 1");
    (stamp.0.trailing_zeros()..u64::BITS).map(move |height| Stamp((stamp.0 >> height | 1) << height))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A lifetime, by its first stamp and its last, near each other as often as far apart.
    fn life() -> impl Strategy<Value = (u64, u64)> {
        let birth = prop_oneof![1..300_u64, 1..u64::MAX / 2];
        let age = prop_oneof![0..300_u64, (0..62_u32).prop_map(|height| 1 << height)];
        (birth, age).prop_map(|(birth, age)| (birth, birth + age))
    }

    proptest! {
        #[test]
        fn a_pivot_is_the_one_stamp_of_a_life_that_two_divides_most_often((first, last) in life()) {
            let pivot = pivot_of(Stamp(first), Stamp(last + 1)).0;
            prop_assert!((first..=last).contains(&pivot));
            let step = 1_u64 << pivot.trailing_zeros();
            prop_assert!(pivot - step < first && pivot.checked_add(step).is_none_or(|next| next > last));
        }

        #[test]
        fn every_stamp_of_a_life_has_its_pivot_above_it((first, last) in life(), at in any::<u64>()) {
            let stamp = first + at % (last - first + 1);
            let pivot = pivot_of(Stamp(first), Stamp(last + 1));
            prop_assert!(pivots_above(Stamp(stamp)).any(|above| above == pivot));
        }
    }

    #[test]
    fn above_a_stamp_are_those_that_two_divides_more_often_up_to_the_root() {
        let above: Vec<_> = pivots_above(Stamp(21)).take(7).map(|stamp| stamp.0).collect();
        assert_eq!(above, [21, 22, 20, 24, 16, 32, 64]);
        assert_eq!(pivots_above(Stamp(20)).next(), Some(Stamp(20)));
        assert_eq!(pivots_above(Stamp(1)).last(), Some(Stamp(1 << 63)));
    }
}
