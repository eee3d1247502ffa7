//! Speed of the block checksum on blocks in the processor's cache: `checksum_speed SECONDS` prints one line
//! of JSON: bytes, seconds, processor seconds.

use array::format::{BLOCK_BYTES, BlockIndex, BlockKey, BranchNumber, ChecksumSeed, PoolId, Stamp};
use std::{env, hint::black_box, process::ExitCode, time::Duration};
use world::{
    Buffer,
    real::{RealOptions, host::process_use, run},
};

/// Few enough to stay in a core's own cache.
const BLOCKS: usize = 16;
/// Rounds between two reads of the clock.
const ROUNDS: u64 = 4096;

fn main() -> ExitCode {
    let Some(seconds) = env::args().nth(1).and_then(|word| word.parse().ok()) else {
        eprintln!("usage: checksum_speed SECONDS");
        return ExitCode::from(2);
    };
    run(1, RealOptions::default(), async |world| {
        let mut data = Buffer::zeroed(BLOCKS * BLOCK_BYTES);
        world.random("data").fill(&mut data);
        let seed = ChecksumSeed::of(PoolId([7; 16]));
        let (start, used) = (world.now(), process_use());
        let end = start + Duration::from_secs_f64(seconds);
        let mut rounds = 0;
        while world.now() < end {
            for stamp in rounds..rounds + ROUNDS {
                for (index, block) in data.chunks_exact(BLOCK_BYTES).enumerate() {
                    let key = BlockKey {
                        branch: BranchNumber(1),
                        block: BlockIndex(index as u64),
                        stamp: Stamp(stamp + 1),
                    };
                    black_box(seed.checksum(key, black_box(block)));
                }
            }
            rounds += ROUNDS;
        }
        println!(
            "{{\"bytes\": {}, \"seconds\": {}, \"cpu_seconds\": {}}}",
            rounds * (BLOCKS * BLOCK_BYTES) as u64,
            world.now().since(start).as_secs_f64(),
            process_use().cpu().saturating_sub(used.cpu()).as_secs_f64(),
        );
    });
    ExitCode::SUCCESS
}
