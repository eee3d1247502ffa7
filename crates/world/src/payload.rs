//! The data of one I/O, split into requests no larger than a connection accepts: for clients of remote
//! devices.

use crate::Buffer;
use std::{ops::Range, sync::Arc};

/// Ranges of buffers, concatenated.
pub type Payload = Vec<(Arc<Buffer>, Range<usize>)>;

/// Splits the contents of `from` into as few payloads of at most `most` bytes as possible.
pub fn payloads(from: &[Arc<Buffer>], most: usize) -> Vec<Payload> {
    let mut all = Vec::new();
    let mut payload = Payload::new();
    let mut room = most;
    for buffer in from {
        let mut start = 0;
        while start < buffer.len() {
            let count = (buffer.len() - start).min(room);
            payload.push((Arc::clone(buffer), start..start + count));
            start += count;
            room -= count;
            if room == 0 {
                all.push(std::mem::take(&mut payload));
                room = most;
            }
        }
    }
    if !payload.is_empty() {
        all.push(payload);
    }
    all
}

pub fn bytes_in(payload: &Payload) -> usize {
    payload.iter().map(|(_, range)| range.len()).sum()
}

/// The bytes `start..end` of `payload`.
pub fn part_of(payload: &Payload, start: usize, end: usize) -> Payload {
    let mut first = 0;
    let mut part = Payload::new();
    for (buffer, range) in payload {
        let (from, to) = (start.max(first), end.min(first + range.len()));
        if from < to {
            part.push((buffer.clone(), range.start + from - first..range.start + to - first));
        }
        first += range.len();
    }
    part
}

/// Copies `data` into the concatenated buffers of `into`, beginning at byte `start`.
///
/// # Panics
///
/// If the buffers are too small.
pub fn scatter(data: &[u8], start: usize, into: &mut [Buffer]) {
    let (mut first, mut done) = (0, 0);
    for buffer in into {
        let end = first + buffer.len();
        let at = start + done;
        if at < end && done < data.len() {
            let count = (data.len() - done).min(end - at);
            buffer[at - first..][..count].copy_from_slice(&data[done..done + count]);
            done += count;
        }
        first = end;
    }
    assert_eq!(done, data.len(), "the buffers have room for all of data");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitting_into_payloads_and_scattering_restores_the_bytes() {
        let bytes: Vec<u8> = (0..20_000_u32).map(|number| (number / 7) as u8).collect();
        for sizes in [vec![20_000], vec![4096, 4096, 11_808], vec![1, 19_999]] {
            let mut start = 0;
            let from: Vec<_> = sizes
                .iter()
                .map(|&size| {
                    start += size;
                    Arc::new(Buffer::copy_of(&bytes[start - size..start]))
                })
                .collect();
            for most in [1000, 4096, 8192, 1 << 20] {
                let mut into: Vec<Buffer> = [5000, 3000, 12_000].map(Buffer::zeroed).into();
                let mut start = 0;
                for payload in payloads(&from, most) {
                    let (middle, end) = (payload[0].1.len() / 2, bytes_in(&payload));
                    let halves = [part_of(&payload, 0, middle), part_of(&payload, middle, end)];
                    let piece: Vec<u8> = halves
                        .iter()
                        .flatten()
                        .flat_map(|(buffer, range)| buffer[range.clone()].to_vec())
                        .collect();
                    assert!(piece.len() <= most && (piece.len() == most || start + piece.len() == 20_000));
                    scatter(&piece, start, &mut into);
                    start += piece.len();
                }
                assert!(
                    into.iter().flat_map(|buffer| buffer.to_vec()).eq(bytes.iter().copied()),
                    "{sizes:?} {most}"
                );
            }
        }
    }
}
