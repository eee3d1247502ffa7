//! Seeded changes of what the decoders read.

use crate::decoder_bytes::{check, examples};
use world::Random;

#[test]
fn changed_bytes_are_an_error_or_mean_the_same_when_written_again() {
    for (name, example) in examples() {
        check(&example);
        let mut random = Random::new(1, name);
        for _ in 0..3_000 {
            let mut changed = example.clone();
            for _ in 0..1 + random.below(3) {
                let at = 1 + random.below(changed.len() as u64 - 1) as usize;
                match random.below(3) {
                    0 => changed[at] ^= 1 << random.below(8),
                    1 => changed[at] = b"0123456789{}[]\",:-\\"[random.below(19) as usize],
                    _ => changed.truncate(at + 1),
                }
            }
            check(&changed);
        }
    }
}
