//! MODE SENSE and MODE SELECT: what can be set (SPC-4, 6.11 to 6.14; SBC-3, 6.5).
//!
//! Two things can be changed: whether the write cache is on (WCE of the caching page), and whether nobody may write (SWP of
//! the control page). Of units that share their room, also which thresholds of it initiators hear of.

use super::{
    sense::{AdditionalSense, Sense},
    thresholds::Thresholds,
};

/// Which values are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Values {
    /// As they are.
    Current = 0,
    /// Ones where something can be changed.
    Changeable = 1,
    /// As they are at first.
    Default = 2,
    /// As they are kept: none are.
    Saved = 3,
}

impl Values {
    /// From the two bits PC.
    pub fn of(bits: u8) -> Self {
        [Self::Current, Self::Changeable, Self::Default, Self::Saved][usize::from(bits & 3)]
    }
}

/// What a unit is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Writes are answered before they are stable.
    pub has_write_cache: bool,
    /// So it was at first.
    pub had_write_cache: bool,
    /// Nothing may be written, for now.
    pub is_write_protected: bool,
    /// Nothing may be written.
    pub is_read_only: bool,
    /// Of a unit that shares its room: what initiators hear of.
    pub thresholds: Option<Thresholds>,
    /// So it was at first.
    pub had_thresholds: Option<Thresholds>,
}

impl Mode {
    /// As it was at first.
    pub fn at_first(self) -> Self {
        Self {
            has_write_cache: self.had_write_cache,
            is_write_protected: false,
            thresholds: self.had_thresholds,
            ..self
        }
    }
}

/// The form of a mode parameter list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Of the ten-byte commands: a header of 8 bytes, not 4.
    pub is_long: bool,
    /// With a block descriptor; a long one, if there is one and it is long.
    pub descriptor: Option<Descriptor>,
}

/// A block descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Of 16 bytes, not 8.
    pub is_long: bool,
    /// Blocks there are.
    pub blocks: u64,
    /// Bytes of each.
    pub block_bytes: u32,
}

const RECOVERY: u8 = 0x01;
const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const EXCEPTIONS: u8 = 0x1c;
/// Subpage of the page before: logical block provisioning.
const PROVISIONING: u8 = 0x02;
/// All pages, all subpages.
const ALL: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;
/// The page has a subpage.
const SPF: u8 = 0x40;
const LBPERE: u8 = 0x80;
const WCE: u8 = 0x04;
const SWP: u8 = 0x08;

/// All there may be, with their subpages.
const PAGES: [(u8, u8); 5] =
    [(RECOVERY, 0), (CACHING, 0), (CONTROL, 0), (EXCEPTIONS, 0), (EXCEPTIONS, PROVISIONING)];

fn page_of(mode: &Mode, values: Values, page: (u8, u8)) -> Option<Vec<u8>> {
    let thresholds = if values == Values::Default { mode.had_thresholds } else { mode.thresholds };
    match (page, values) {
        ((EXCEPTIONS, PROVISIONING), Values::Changeable) => Some(thresholds?.changeable_page()),
        ((EXCEPTIONS, PROVISIONING), _) => Some(thresholds?.page()),
        ((RECOVERY, 0), _) => {
            let is_on = thresholds?.is_reporting || values == Values::Changeable;
            let mut bytes = vec![RECOVERY, 10, 0, 0, 0, 0, 0, if is_on { LBPERE } else { 0 }];
            bytes.resize(12, 0);
            Some(bytes)
        }
        ((page, 0), _) => short_page_of(mode, values, page),
        _ => None,
    }
}

fn short_page_of(mode: &Mode, values: Values, page: u8) -> Option<Vec<u8>> {
    let wce = |is_on: bool| if is_on { WCE } else { 0 };
    let mut bytes = match page {
        CACHING => vec![0; 20],
        CONTROL => vec![0; 12],
        EXCEPTIONS => vec![0; 12],
        _ => return None,
    };
    (bytes[0], bytes[1]) = (page, bytes.len() as u8 - 2);
    match (page, values) {
        (CACHING, Values::Changeable) => bytes[2] = WCE,
        (CACHING, Values::Current) => bytes[2] = wce(mode.has_write_cache),
        (CACHING, _) => bytes[2] = wce(mode.had_write_cache),
        (CONTROL, Values::Changeable) => bytes[4] = SWP,
        // Commands may be done in any order; sense data are of fixed format.
        (CONTROL, Values::Current | Values::Default) => {
            bytes[3] = 0x10;
            bytes[4] = if mode.is_write_protected && values == Values::Current { SWP } else { 0 };
            bytes[8..10].copy_from_slice(&[0xff, 0xff]);
        }
        _ => {}
    }
    Some(bytes)
}

/// The list that is answered: header, descriptor, pages.
///
/// # Errors
///
/// There is no such page, or nothing that is saved.
pub fn sense(mode: &Mode, values: Values, (page, subpage): (u8, u8), form: Form) -> Result<Vec<u8>, Sense> {
    let invalid = Sense::illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
    if values == Values::Saved {
        return Err(Sense::illegal(AdditionalSense::SAVING_NOT_SUPPORTED));
    }
    let is_wanted = |(code, sub): &(u8, u8)| {
        (page == ALL || *code == page) && (subpage == ALL_SUBPAGES || *sub == subpage)
    };
    let pages: Vec<u8> = PAGES
        .into_iter()
        .filter(is_wanted)
        .filter_map(|page| page_of(mode, values, page))
        .flatten()
        .collect();
    if pages.is_empty() { Err(invalid) } else { Ok(list(mode, form, &pages)) }
}

fn list(mode: &Mode, form: Form, pages: &[u8]) -> Vec<u8> {
    let descriptor = form.descriptor.map(descriptor_bytes).unwrap_or_default();
    // WP, and DPOFUA: both are understood.
    let specific = if mode.is_read_only || mode.is_write_protected { 0x90 } else { 0x10 };
    let is_long_descriptor = form.descriptor.is_some_and(|descriptor| descriptor.is_long);
    let mut list = match form.is_long {
        true => {
            let length = (6 + descriptor.len() + pages.len()) as u16;
            let mut list = length.to_be_bytes().to_vec();
            list.extend([0, specific, u8::from(is_long_descriptor), 0]);
            list.extend((descriptor.len() as u16).to_be_bytes());
            list
        }
        false => vec![(3 + descriptor.len() + pages.len()) as u8, 0, specific, descriptor.len() as u8],
    };
    list.extend(descriptor);
    list.extend(pages);
    list
}

fn descriptor_bytes(descriptor: Descriptor) -> Vec<u8> {
    let Descriptor { is_long, blocks, block_bytes } = descriptor;
    match is_long {
        true => [&blocks.to_be_bytes()[..], &[0; 4], &block_bytes.to_be_bytes()].concat(),
        false => {
            let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
            [&blocks.to_be_bytes()[..], &block_bytes.to_be_bytes()].concat()
        }
    }
}

/// What MODE SELECT asks for: the mode as it is to be.
///
/// # Errors
///
/// The list is cut, or asks for a change of something that cannot be changed. Nothing was changed.
pub fn select(mode: &Mode, is_long: bool, list: &[u8]) -> Result<Mode, Sense> {
    let cut = Sense::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    let invalid = Sense::illegal(AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST);
    if list.is_empty() {
        return Ok(*mode);
    }
    let header = if is_long { 8 } else { 4 };
    let head = list.get(..header).ok_or(cut)?;
    let descriptors = match is_long {
        true => usize::from(u16::from_be_bytes([head[6], head[7]])),
        false => usize::from(head[3]),
    };
    let mut rest = list.get(header + descriptors..).ok_or(cut)?;
    let mut wanted = *mode;
    while !rest.is_empty() {
        let is_sub = rest[0] & SPF != 0;
        let head = rest.get(..if is_sub { 4 } else { 2 }).ok_or(cut)?;
        let (sub, length) = match is_sub {
            true => (head[1], usize::from(u16::from_be_bytes([head[2], head[3]]))),
            false => (0, usize::from(head[1])),
        };
        let page = rest.get(..head.len() + length).ok_or(cut)?;
        rest = &rest[page.len()..];
        let name = (page[0] & 0x3f, sub);
        let now = page_of(mode, Values::Current, name).ok_or(invalid)?;
        let may = page_of(mode, Values::Changeable, name).expect("it is there");
        // PS is for who senses.
        let is_form = page[0] == now[0] && page.len() == now.len();
        let differs = |index: usize| (page[index] ^ now[index]) & !may[index] != 0;
        if !is_form || (head.len()..page.len()).any(differs) {
            return Err(invalid);
        }
        match name {
            (CACHING, _) => wanted.has_write_cache = page[2] & WCE != 0,
            (CONTROL, _) => wanted.is_write_protected = page[4] & SWP != 0,
            (RECOVERY, _) => {
                let is_reporting = page[7] & LBPERE != 0;
                wanted.thresholds = wanted.thresholds.map(|all| Thresholds { is_reporting, ..all });
            }
            (EXCEPTIONS, PROVISIONING) => {
                wanted.thresholds = wanted.thresholds.map(|all| all.with_page(page));
            }
            _ => {}
        }
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODE: Mode = Mode {
        has_write_cache: false,
        had_write_cache: false,
        is_write_protected: false,
        is_read_only: false,
        thresholds: None,
        had_thresholds: None,
    };
    const SHORT: Form = Form { is_long: false, descriptor: None };

    #[test]
    fn lists_say_how_long_they_are() {
        let descriptor = |is_long| Some(Descriptor { is_long, blocks: 1 << 33, block_bytes: 512 });
        for (is_long, descriptor, header) in
            [(false, None, 4), (false, descriptor(false), 12), (true, None, 8), (true, descriptor(true), 24)]
        {
            let list = sense(&MODE, Values::Current, (ALL, 0), Form { is_long, descriptor }).unwrap();
            let length = match is_long {
                true => usize::from(u16::from_be_bytes([list[0], list[1]])) + 2,
                false => usize::from(list[0]) + 1,
            };
            assert_eq!((length, list[header]), (list.len(), CACHING));
            assert_eq!(list.len(), header + 20 + 12 + 12);
        }
        let huge =
            sense(&MODE, Values::Current, (CACHING, 0), Form { descriptor: descriptor(false), ..SHORT })
                .unwrap();
        assert_eq!(huge[4..12], [0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0], "more blocks than it has room for");
    }

    #[test]
    fn the_write_cache_and_write_protection_are_all_that_can_be_changed() {
        let changeable = sense(&MODE, Values::Changeable, (ALL, 0xff), SHORT).unwrap();
        assert_eq!(changeable[4..].iter().map(|byte| byte.count_ones()).sum::<u32>(), {
            let headers: u32 = [(CACHING, 18_u8), (CONTROL, 10), (EXCEPTIONS, 10)]
                .iter()
                .map(|(page, length)| page.count_ones() + length.count_ones())
                .sum();
            headers + 2
        });
        let mut list = sense(&MODE, Values::Current, (CACHING, 0), SHORT).unwrap();
        assert_eq!(select(&MODE, false, &list), Ok(MODE));
        list[4 + 2] |= WCE;
        let with_cache = select(&MODE, false, &list).unwrap();
        assert!(with_cache.has_write_cache && !with_cache.had_write_cache);
        assert_eq!(sense(&with_cache, Values::Default, (CACHING, 0), SHORT).unwrap()[6] & WCE, 0);
        assert_eq!(sense(&with_cache, Values::Current, (CACHING, 0), SHORT).unwrap()[6] & WCE, WCE);
        let mut control = sense(&MODE, Values::Current, (CONTROL, 0), SHORT).unwrap();
        control[4 + 4] |= SWP;
        let protected = select(&MODE, false, &control).unwrap();
        assert!(protected.is_write_protected);
        assert_eq!(sense(&protected, Values::Current, (CONTROL, 0), SHORT).unwrap()[2], 0x90, "WP");
        list[4 + 3] = 1;
        assert!(select(&MODE, false, &list).is_err(), "nothing else");
    }

    #[test]
    fn a_unit_that_shares_its_room_has_pages_for_it() {
        let thresholds = Some(Thresholds::at([80, 90, 95], world::ByteCount(10 << 30)));
        let mode = Mode { thresholds, had_thresholds: thresholds, ..MODE };
        for (page, sub) in [(RECOVERY, 0), (EXCEPTIONS, PROVISIONING)] {
            assert!(sense(&MODE, Values::Current, (page, sub), SHORT).is_err(), "others have none");
            let mut list = sense(&mode, Values::Current, (page, sub), SHORT).unwrap();
            assert_eq!(select(&mode, false, &list), Ok(mode));
            assert_eq!(sense(&mode, Values::Default, (page, sub), SHORT).as_ref(), Ok(&list));
            if page == RECOVERY {
                list[4 + 7] = 0;
                assert!(!select(&mode, false, &list).unwrap().thresholds.unwrap().is_reporting);
            } else {
                list[4 + 16 + 7] = 3;
                let set = select(&mode, false, &list).unwrap();
                assert_ne!(set, mode);
                assert_eq!(set.at_first(), mode);
                list[4 + 17] = 1;
                assert!(select(&mode, false, &list).is_err(), "of what is available nothing is said");
            }
        }
        let plain = sense(&mode, Values::Current, (ALL, 0), SHORT).unwrap();
        let all = sense(&mode, Values::Current, (ALL, 0xff), SHORT).unwrap();
        assert_eq!((plain.len(), all.len()), (4 + 12 + 20 + 12 + 12, plain.len() + 40));
        assert_eq!(select(&mode, false, &all), Ok(mode));
        for length in 1..all.len() {
            // However it is cut, nothing breaks.
            let _ = select(&mode, false, &all[..length]);
        }
    }

    #[test]
    fn what_is_cut_or_unknown_is_refused() {
        let list = sense(&MODE, Values::Current, (ALL, 0), Form { is_long: true, descriptor: None }).unwrap();
        assert_eq!(select(&MODE, true, &list), Ok(MODE));
        assert_eq!(select(&MODE, true, &[]), Ok(MODE), "no list asks for nothing");
        for length in 1..list.len() {
            let cut = select(&MODE, true, &list[..length]);
            let whole_pages = [8, 28, 40].contains(&length);
            assert_eq!(cut.is_ok(), whole_pages, "{length} bytes of it");
        }
        assert!(sense(&MODE, Values::Saved, (ALL, 0), SHORT).is_err());
        assert!(sense(&MODE, Values::Current, (0x01, 0), SHORT).is_err());
        assert!(sense(&MODE, Values::Current, (CACHING, 1), SHORT).is_err());
    }
}
