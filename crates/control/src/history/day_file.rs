//! The file of a day ([its format](../../../../docs/formats/history-day.md)).

use super::{
    day::{DaySeries, HistoryDay, SLOTS},
    sample::IoSample,
    series::SeriesKey,
};
use array::format::{PoolId, VolumeId};
use std::collections::BTreeMap;
use thiserror::Error;
use world::crc32c::crc32c;

const MAGIC: &[u8; 8] = b"spnd-day";
const VERSION: u32 = 1;
/// Bytes before the packed series.
const HEADER_BYTES: usize = 64;
const CHECKSUM_BYTES: usize = 4;
/// Most bytes of the series, unpacked: 7,000 volumes and pools that were busy all day.
const SERIES_BYTES_MAX: usize = 16 << 20;
/// Half a millisecond for each volume: levels above it gain 2 %.
const PACKING_LEVEL: i32 = 9;

/// A file that is no day.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DayFileError {
    /// A newer program wrote it.
    #[error(
        "it has version {0}, and this program knows version {VERSION}: use the program that wrote it, or a newer one"
    )]
    Newer(u32),
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
}

use DayFileError::Damaged;

/// The file of a day.
///
/// # Panics
///
/// If it has more series than a server keeps in a day.
pub fn encode_day(day: &HistoryDay) -> Vec<u8> {
    let series = encode_series(day);
    assert!(series.len() <= SERIES_BYTES_MAX, "series are bounded");
    let packed = zstd::bulk::compress(&series, PACKING_LEVEL).expect("memory is packed into memory");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + packed.len() + CHECKSUM_BYTES);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&i32::try_from(day.day).expect("days until 5,000,000").to_le_bytes());
    bytes.extend_from_slice(&day.left_out.to_le_bytes());
    let mut recorded = [0_u8; SLOTS / 8];
    day.recorded_slots().for_each(|slot| recorded[slot / 8] |= 1 << (slot % 8));
    bytes.extend_from_slice(&recorded);
    for length in [series.len(), packed.len()] {
        bytes.extend_from_slice(&u32::try_from(length).expect("it is bounded").to_le_bytes());
    }
    assert_eq!(bytes.len(), HEADER_BYTES, "the header has its size");
    bytes.extend_from_slice(&packed);
    bytes.extend_from_slice(&crc32c(&[&bytes]).to_le_bytes());
    bytes
}

fn encode_series(day: &HistoryDay) -> Vec<u8> {
    let slots: Vec<usize> = day.recorded_slots().collect();
    let mut bytes = u32::try_from(day.series.len()).expect("few").to_le_bytes().to_vec();
    for (key, series) in &day.series {
        bytes.extend_from_slice(&key.pool.0);
        bytes.push(u8::from(key.volume.is_some()));
        bytes.extend_from_slice(&key.volume.map_or([0; 16], |volume| volume.0));
        bytes.extend_from_slice(&series.size_bytes.to_le_bytes());
        for name in [&series.pool, &series.volume] {
            bytes.extend_from_slice(&u16::try_from(name.len()).expect("names are short").to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
        }
        let has_some = |figure: &usize| slots.iter().any(|&slot| series.levels[*figure][slot] != 0);
        let figures: Vec<usize> = (0..IoSample::FIGURES).filter(has_some).collect();
        bytes.push(figures.iter().fold(0, |mask, figure| mask | 1 << figure));
        for figure in figures {
            // Differences pack better: loads change little in five minutes.
            let mut before = 0_u8;
            for &slot in &slots {
                let level = series.levels[figure][slot];
                bytes.push(level.wrapping_sub(before));
                before = level;
            }
        }
    }
    bytes
}

/// Reads the file of a day.
///
/// # Errors
///
/// It is damaged, or of a newer version.
pub fn decode_day(bytes: &[u8]) -> Result<HistoryDay, DayFileError> {
    let mut header = ByteReader(bytes);
    if header.array::<8>()? != *MAGIC {
        return Err(Damaged("it does not begin as a day of the history does"));
    }
    match header.number()? {
        0 => return Err(Damaged("there is no version 0")),
        VERSION => {}
        newer => return Err(DayFileError::Newer(newer)),
    }
    let end = bytes.len().checked_sub(CHECKSUM_BYTES).filter(|end| *end >= HEADER_BYTES);
    let end = end.ok_or(Damaged("it is too short"))?;
    let (checked, checksum) = bytes.split_at(end);
    if crc32c(&[checked]).to_le_bytes() != checksum {
        return Err(Damaged("its checksum differs"));
    }
    let mut day = HistoryDay::new(i64::from(i32::from_le_bytes(header.array()?)));
    day.left_out = header.number()?;
    let recorded = header.array::<{ SLOTS / 8 }>()?;
    day.recorded = std::array::from_fn(|slot| recorded[slot / 8] & (1 << (slot % 8)) != 0);
    let (length, packed_length) = (header.number()? as usize, header.number()? as usize);
    let packed = &checked[HEADER_BYTES..];
    if packed.len() != packed_length || length > SERIES_BYTES_MAX {
        return Err(Damaged("its length differs from its header"));
    }
    let series =
        zstd::bulk::decompress(packed, length).map_err(|_| Damaged("its series cannot be unpacked"))?;
    if series.len() != length {
        return Err(Damaged("its series have another length"));
    }
    day.series = decode_series(&series, &day.recorded_slots().collect::<Vec<_>>())?;
    Ok(day)
}

fn decode_series(bytes: &[u8], slots: &[usize]) -> Result<BTreeMap<SeriesKey, DaySeries>, DayFileError> {
    let mut reader = ByteReader(bytes);
    let mut known = BTreeMap::new();
    for _ in 0..reader.number()? {
        let pool = PoolId(reader.array()?);
        let [has_volume] = reader.array()?;
        let volume = reader.array()?;
        let volume = match has_volume {
            0 if volume == [0; 16] => None,
            1 => Some(VolumeId(volume)),
            _ => return Err(Damaged("a series is neither of a pool nor of a volume")),
        };
        let size_bytes = u64::from_le_bytes(reader.array()?);
        let (pool_name, volume_name) = (reader.name()?, reader.name()?);
        let [mask] = reader.array()?;
        let mut levels = Box::new([[0; SLOTS]; IoSample::FIGURES]);
        for figure in (0..IoSample::FIGURES).filter(|figure| mask & (1 << figure) != 0) {
            let mut level = 0_u8;
            for (&slot, difference) in slots.iter().zip(reader.take(slots.len())?) {
                level = level.wrapping_add(*difference);
                levels[figure][slot] = level;
            }
        }
        let series = DaySeries { pool: pool_name, volume: volume_name, size_bytes, levels };
        if known.insert(SeriesKey { pool, volume }, series).is_some() {
            return Err(Damaged("a series is there twice"));
        }
    }
    match reader.0 {
        [] => Ok(known),
        _ => Err(Damaged("something follows its series")),
    }
}

/// Bytes that are read from the front.
struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], DayFileError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Damaged("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DayFileError> {
        Ok(self.take(N)?.try_into().expect("it has this length"))
    }

    fn number(&mut self) -> Result<u32, DayFileError> {
        self.array().map(u32::from_le_bytes)
    }

    fn name(&mut self) -> Result<String, DayFileError> {
        let length = u16::from_le_bytes(self.array()?);
        let name = std::str::from_utf8(self.take(length.into())?);
        name.map(str::to_owned).map_err(|_| Damaged("a name is no text"))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::day::tests::volume, *};

    /// The day of the golden image: a volume that works from 8 to 18 h, and the sum of its pool.
    fn golden_day() -> HistoryDay {
        let mut day = HistoryDay::new(20_785);
        let store = volume(1);
        let sum = SeriesKey { volume: None, ..store.key };
        let sum = super::super::KnownSeries { key: sum, volume: String::new(), ..store.clone() };
        for slot in 96..216 {
            let rate = 100.0 + (slot % 12) as f32 * 10.0;
            let figures = [2.0 * rate, rate * 65_536.0, 0.004, 0.016, rate, rate * 32_768.0, 0.001, 0.004];
            let sample = IoSample::of_figures(figures);
            day.record(slot, &[(store.clone(), sample), (sum.clone(), sample)], 0);
        }
        day
    }

    /// Files of version 1 are read for ever; how they are packed may differ.
    #[test]
    fn the_golden_image_is_read() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/golden/history-day-1.hex");
        if std::env::var_os("WRITE_GOLDEN_DAY").is_some() {
            let hex: Vec<String> =
                encode_day(&golden_day()).iter().map(|byte| format!("{byte:02x}")).collect();
            let lines: Vec<String> = hex.chunks(32).map(|line| line.join(" ")).collect();
            world::real::host_files::write_atomically(path.as_ref(), (lines.join("\n") + "\n").as_bytes())
                .unwrap();
        }
        let text = world::real::host_files::read_to_string(path.as_ref()).unwrap();
        let byte = |word: &str| u8::from_str_radix(word, 16).unwrap();
        let bytes: Vec<u8> = text.split_whitespace().map(byte).collect();
        assert_eq!(decode_day(&bytes), Ok(golden_day()));
    }

    /// A load with days, nights and noise on `volumes` volumes.
    fn busy_day(volumes: u8, slots: usize) -> HistoryDay {
        let mut day = HistoryDay::new(20_786);
        let mut random = world::Random::new(7, "a busy day");
        for slot in 0..slots {
            let hour = slot as f32 / 12.0;
            let working = (1.0 - ((hour - 14.0) / 7.0).powi(2)).max(0.08);
            let mut noise = |of: f32| of * (0.85 + 0.3 * (random.below(1000) as f32 / 1000.0));
            let samples: Vec<_> = (0..volumes)
                .map(|number| {
                    let rate = working * (20.0 + f32::from(number));
                    let (reads, writes) = (noise(rate), noise(0.6 * rate));
                    let figures = [
                        reads,
                        noise(reads * 32e3),
                        noise(0.006),
                        noise(0.020),
                        writes,
                        noise(writes * 24e3),
                        noise(0.002),
                        noise(0.009),
                    ];
                    (volume(number + 1), IoSample::of_figures(figures))
                })
                .collect();
            day.record(slot, &samples, 0);
        }
        day
    }

    #[test]
    fn a_day_is_read_as_it_was_written() {
        for day in [HistoryDay::new(-3), busy_day(3, 40), busy_day(1, SLOTS)] {
            assert_eq!(decode_day(&encode_day(&day)), Ok(day));
        }
    }

    #[test]
    fn four_hundred_days_of_256_busy_volumes_are_less_than_100_mb() {
        let bytes = encode_day(&busy_day(255, SLOTS)).len();
        let all = bytes as f64 * 256.0 / 255.0 * super::super::KEPT_DAYS as f64;
        assert!(all < super::super::FILES_BYTES_MAX as f64, "{bytes} B a day are {:.0} MB", all / 1e6);
        eprintln!("{bytes} B a day are {:.0} MB", all / 1e6);
    }

    #[test]
    fn what_is_damaged_newer_or_foreign_is_refused() {
        let whole = encode_day(&busy_day(2, 30));
        for length in 0..whole.len() {
            assert!(decode_day(&whole[..length]).is_err(), "{length} bytes of it");
        }
        for byte in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[byte] ^= 0x10;
            assert!(decode_day(&damaged).is_err(), "byte {byte}");
        }
        let mut newer = whole.clone();
        newer[8] = 2;
        assert_eq!(decode_day(&newer), Err(DayFileError::Newer(2)));
        assert!(decode_day(&[&whole[..], b"x"].concat()).is_err());
    }

    #[test]
    fn series_that_contradict_themselves_are_refused() {
        let day = busy_day(1, 3);
        let slots = [0, 1, 2];
        let one = encode_series(&day);
        assert!(decode_series(&one, &slots).is_ok());
        let twice = [&2_u32.to_le_bytes()[..], &one[4..], &one[4..]].concat();
        assert_eq!(decode_series(&twice, &slots), Err(Damaged("a series is there twice")));
        let mut of_neither = one.clone();
        of_neither[20] = 0;
        assert!(decode_series(&of_neither, &slots).is_err());
        assert!(decode_series(&one, &slots[..2]).is_err(), "there are more slots than the header has");
        assert!(decode_series(&one, &[0, 1, 2, 3]).is_err());
    }
}
