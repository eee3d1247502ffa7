//! The map alone: what it costs to write it and to read it, and the room it takes on disk.

use super::{
    super::{
        Setting, fio,
        our_programs::{OurPrograms, number},
        record::Record,
        row::{Goal, Measurement, Row, interleave},
    },
    DEPTH,
};
use anyhow::Result;
use serde_json::Value;
use std::{fs, path::Path};

const RANDOM: &str = "map, random inserts, one core";
const SEQUENTIAL: &str = "map, sequential inserts, one core";
const SMALL: &str = "map on disk, 8 KiB writes";
const LARGE: &str = "map on disk, 32 KiB writes";
const READS: &str = "map, random reads, depth 32";
/// Bytes of a node.
const NODE_BYTES: u64 = 4096;
/// RAM for nodes, for each block of the map: 64 MiB of 16 million blocks.
const CACHE_BYTES_A_BLOCK: u64 = 4;

struct Scale {
    blocks: u64,
    seconds: f64,
    rounds: usize,
}

const FULL: Scale = Scale { blocks: 16 << 20, seconds: 4.0, rounds: 5 };
const QUICK: Scale = Scale { blocks: 2 << 20, seconds: 1.0, rounds: 3 };

/// Measures all rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    if ![RANDOM, SEQUENTIAL, SMALL, LARGE, READS].iter().any(|what| setting.wants(what)) {
        return Ok(Vec::new());
    }
    let scale = if setting.quick { QUICK } else { FULL };
    let mut made = Row::new(
        RANDOM,
        "/s",
        Goal::AtLeast(200_000.0),
        format!(
            "map: {} million blocks; inserts by processor seconds, merges and writing of nodes included: every block \
             once in random order, then as many again at random over them",
            scale.blocks >> 20
        ),
    );
    let mut sequential = Row::new(SEQUENTIAL, "/s", Goal::AtLeast(1e6), "");
    let mut small = Row::new(SMALL, "bytes/block", Goal::AtMost(20.0), "map on disk: all nodes, after that");
    let mut large = Row::new(LARGE, "bytes/block", Goal::AtMost(12.0), "");
    let folder = setting.folder.join("map");
    println!("   maps of {} million blocks", scale.blocks >> 20);
    let raw = make(ours, &folder, &scale, "2", "sequential")?;
    sequential.ours.push(Measurement { value: inserts_a_second(&raw)?, raw });
    let raw = make(ours, &folder, &scale, "8", "random")?;
    large.ours.push(Measurement { value: number(&raw, "bytes_a_block")?, raw });
    // The last one is the map that is read.
    let raw = make(ours, &folder, &scale, "2", "random")?;
    made.ours.push(Measurement { value: inserts_a_second(&raw)?, raw: raw.clone() });
    small.ours.push(Measurement { value: number(&raw, "bytes_a_block")?, raw });
    let cache_bytes = scale.blocks * CACHE_BYTES_A_BLOCK;
    let mut reads = Row::new(
        READS,
        "/s",
        Goal::OfPeer(0.55),
        format!(
            "map, random reads: lookups of blocks with a cache of {} MiB; fio reads 4 KiB at random in the file of nodes",
            cache_bytes >> 20
        ),
    );
    if setting.wants(READS) {
        println!("   {READS}");
        let arguments = [DEPTH.to_string(), scale.seconds.to_string(), cache_bytes.to_string()];
        interleave(
            &mut reads,
            scale.rounds,
            || {
                let raw =
                    ours.example("map_speed", |command| command.arg(&folder).arg("read").args(&arguments))?;
                Ok(Measurement { value: number(&raw, "reads")? / number(&raw, "seconds")?, raw })
            },
            || fio::random_read(&folder.join("nodes"), NODE_BYTES, DEPTH, scale.seconds, &setting.folder),
        )?;
    }
    fs::remove_dir_all(&folder)?;
    record.method(
        "map: no data is written; nodes go to two files, through the same merge as a checkpoint's, with a pool's table \
         and cache; lookups begin with a second that is not counted",
    );
    let mut rows = vec![made, sequential, small, large, reads];
    rows.retain(|row| setting.wants(&row.what));
    Ok(rows)
}

/// A new map in an empty folder.
fn make(ours: &OurPrograms, folder: &Path, scale: &Scale, piece: &str, order: &str) -> Result<Value> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir(folder)?;
    let blocks = scale.blocks.to_string();
    ours.example("map_speed", |command| command.arg(folder).args(["make", &blocks, piece, order]))
}

/// Blocks by processor seconds, over all that was written.
fn inserts_a_second(raw: &Value) -> Result<f64> {
    let (mut blocks, mut seconds) = (0.0, 0.0);
    for part in ["inserted", "overwritten"].iter().map(|part| &raw[part]).filter(|part| !part.is_null()) {
        blocks += number(part, "blocks")?;
        seconds += number(part, "cpu_seconds")?;
    }
    Ok(blocks / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn inserts_are_counted_over_both_parts() {
        let part = |seconds: f64| json!({ "blocks": 1000, "cpu_seconds": seconds });
        assert_eq!(
            inserts_a_second(&json!({ "inserted": part(1.0), "overwritten": part(3.0) })).unwrap(),
            500.0
        );
        assert_eq!(inserts_a_second(&json!({ "inserted": part(1.0), "overwritten": null })).unwrap(), 1000.0);
    }
}
