//! MODE SENSE and MODE SELECT (SPC-4, 6.11 to 6.14; SBC-3, 6.5).
//!
//! Two bits can be changed: WCE of the caching page and SWP of the control page. Units of a thinly
//! provisioned pool can change their provisioning thresholds too.

use super::{
    sense::{AdditionalSense, Sense},
    thresholds::Thresholds,
};

/// The PC field: the values MODE SENSE returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageControl {
    Current = 0,
    /// Ones where a bit can be changed.
    Changeable = 1,
    Default = 2,
    /// Not supported.
    Saved = 3,
}

impl PageControl {
    pub fn of(bits: u8) -> Self {
        [Self::Current, Self::Changeable, Self::Default, Self::Saved][usize::from(bits & 3)]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSettings {
    /// WCE: a write is acknowledged before it is durable.
    pub has_write_cache: bool,
    /// Default of `has_write_cache`.
    pub had_write_cache: bool,
    /// SWP.
    pub is_write_protected: bool,
    /// The export is read-only.
    pub is_read_only: bool,
    /// Set for a unit of a thinly provisioned pool.
    pub thresholds: Option<Thresholds>,
    /// Default of `thresholds`.
    pub had_thresholds: Option<Thresholds>,
}

impl ModeSettings {
    /// The default values.
    pub fn at_first(self) -> Self {
        Self {
            has_write_cache: self.had_write_cache,
            is_write_protected: false,
            thresholds: self.had_thresholds,
            ..self
        }
    }
}

/// Layout of a mode parameter list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeListFormat {
    /// The header of the ten-byte commands: 8 bytes, not 4.
    pub is_long: bool,
    pub descriptor: Option<BlockDescriptor>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockDescriptor {
    /// 16 bytes, not 8.
    pub is_long: bool,
    pub blocks: u64,
    pub block_bytes: u32,
}

const RECOVERY: u8 = 0x01;
const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const EXCEPTIONS: u8 = 0x1c;
/// Subpage of the informational exceptions page: logical block provisioning.
const PROVISIONING: u8 = 0x02;
/// Page code 3Fh and subpage code FFh return all.
const ALL: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;
/// The subpage format bit.
const SPF: u8 = 0x40;
const LBPERE: u8 = 0x80;
const WCE: u8 = 0x04;
const SWP: u8 = 0x08;

/// Page and subpage codes of all pages.
const PAGES: [(u8, u8); 5] =
    [(RECOVERY, 0), (CACHING, 0), (CONTROL, 0), (EXCEPTIONS, 0), (EXCEPTIONS, PROVISIONING)];

fn page_of(mode: &ModeSettings, values: PageControl, page: (u8, u8)) -> Option<Vec<u8>> {
    let thresholds = if values == PageControl::Default { mode.had_thresholds } else { mode.thresholds };
    match (page, values) {
        ((EXCEPTIONS, PROVISIONING), PageControl::Changeable) => Some(thresholds?.changeable_page()),
        ((EXCEPTIONS, PROVISIONING), _) => Some(thresholds?.page()),
        ((RECOVERY, 0), _) => {
            let is_on = thresholds?.is_reporting || values == PageControl::Changeable;
            let mut bytes = vec![RECOVERY, 10, 0, 0, 0, 0, 0, if is_on { LBPERE } else { 0 }];
            bytes.resize(12, 0);
            Some(bytes)
        }
        ((page, 0), _) => short_page_of(mode, values, page),
        _ => None,
    }
}

fn short_page_of(mode: &ModeSettings, values: PageControl, page: u8) -> Option<Vec<u8>> {
    let wce = |is_on: bool| if is_on { WCE } else { 0 };
    let mut bytes = match page {
        CACHING => vec![0; 20],
        CONTROL => vec![0; 12],
        EXCEPTIONS => vec![0; 12],
        _ => return None,
    };
    (bytes[0], bytes[1]) = (page, bytes.len() as u8 - 2);
    match (page, values) {
        (CACHING, PageControl::Changeable) => bytes[2] = WCE,
        (CACHING, PageControl::Current) => bytes[2] = wce(mode.has_write_cache),
        (CACHING, _) => bytes[2] = wce(mode.had_write_cache),
        (CONTROL, PageControl::Changeable) => bytes[4] = SWP,
        // Unrestricted reordering; sense data in fixed format.
        (CONTROL, PageControl::Current | PageControl::Default) => {
            bytes[3] = 0x10;
            bytes[4] = if mode.is_write_protected && values == PageControl::Current { SWP } else { 0 };
            bytes[8..10].copy_from_slice(&[0xff, 0xff]);
        }
        _ => {}
    }
    Some(bytes)
}

/// The parameter list of MODE SENSE: header, block descriptor, pages.
///
/// # Errors
///
/// The page is not supported, or saved values are asked for.
pub fn sense(
    mode: &ModeSettings,
    values: PageControl,
    (page, subpage): (u8, u8),
    form: ModeListFormat,
) -> Result<Vec<u8>, Sense> {
    let invalid = Sense::illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
    if values == PageControl::Saved {
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

fn list(mode: &ModeSettings, form: ModeListFormat, pages: &[u8]) -> Vec<u8> {
    let descriptor = form.descriptor.map(descriptor_bytes).unwrap_or_default();
    // WP and DPOFUA.
    let specific = if mode.is_read_only || mode.is_write_protected { 0x90 } else { 0x10 };
    let is_long_descriptor = form.descriptor.is_some_and(|descriptor| descriptor.is_long);
    let mut list = if form.is_long {
        let length = (6 + descriptor.len() + pages.len()) as u16;
        let mut list = length.to_be_bytes().to_vec();
        list.extend([0, specific, u8::from(is_long_descriptor), 0]);
        list.extend((descriptor.len() as u16).to_be_bytes());
        list
    } else {
        vec![(3 + descriptor.len() + pages.len()) as u8, 0, specific, descriptor.len() as u8]
    };
    list.extend(descriptor);
    list.extend(pages);
    list
}

fn descriptor_bytes(descriptor: BlockDescriptor) -> Vec<u8> {
    let BlockDescriptor { is_long, blocks, block_bytes } = descriptor;
    if is_long {
        [&blocks.to_be_bytes()[..], &[0; 4], &block_bytes.to_be_bytes()].concat()
    } else {
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        [&blocks.to_be_bytes()[..], &block_bytes.to_be_bytes()].concat()
    }
}

/// The settings after a MODE SELECT with this parameter list.
///
/// # Errors
///
/// The list is truncated or would change a bit that is not changeable.
pub fn select(mode: &ModeSettings, is_long: bool, list: &[u8]) -> Result<ModeSettings, Sense> {
    let cut = Sense::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    let invalid = Sense::illegal(AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST);
    if list.is_empty() {
        return Ok(*mode);
    }
    let header = if is_long { 8 } else { 4 };
    let head = list.get(..header).ok_or(cut)?;
    let descriptors =
        if is_long { usize::from(u16::from_be_bytes([head[6], head[7]])) } else { usize::from(head[3]) };
    let mut rest = list.get(header + descriptors..).ok_or(cut)?;
    let mut wanted = *mode;
    while !rest.is_empty() {
        let is_sub = rest[0] & SPF != 0;
        let head = rest.get(..if is_sub { 4 } else { 2 }).ok_or(cut)?;
        let (sub, length) = if is_sub {
            (head[1], usize::from(u16::from_be_bytes([head[2], head[3]])))
        } else {
            (0, usize::from(head[1]))
        };
        let page = rest.get(..head.len() + length).ok_or(cut)?;
        rest = &rest[page.len()..];
        let name = (page[0] & 0x3f, sub);
        let now = page_of(mode, PageControl::Current, name).ok_or(invalid)?;
        let may = page_of(mode, PageControl::Changeable, name).expect("the page exists");
        // PS is reserved in MODE SELECT and ignored.
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

    const MODE: ModeSettings = ModeSettings {
        has_write_cache: false,
        had_write_cache: false,
        is_write_protected: false,
        is_read_only: false,
        thresholds: None,
        had_thresholds: None,
    };
    const SHORT: ModeListFormat = ModeListFormat { is_long: false, descriptor: None };

    #[test]
    fn mode_parameter_lists_state_their_length() {
        let descriptor = |is_long| Some(BlockDescriptor { is_long, blocks: 1 << 33, block_bytes: 512 });
        for (is_long, descriptor, header) in
            [(false, None, 4), (false, descriptor(false), 12), (true, None, 8), (true, descriptor(true), 24)]
        {
            let list =
                sense(&MODE, PageControl::Current, (ALL, 0), ModeListFormat { is_long, descriptor }).unwrap();
            let length = if is_long {
                usize::from(u16::from_be_bytes([list[0], list[1]])) + 2
            } else {
                usize::from(list[0]) + 1
            };
            assert_eq!((length, list[header]), (list.len(), CACHING));
            assert_eq!(list.len(), header + 20 + 12 + 12);
        }
        let huge = sense(
            &MODE,
            PageControl::Current,
            (CACHING, 0),
            ModeListFormat { descriptor: descriptor(false), ..SHORT },
        )
        .unwrap();
        assert_eq!(huge[4..12], [0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0], "more blocks than it has room for");
    }

    #[test]
    fn only_wce_and_swp_are_changeable() {
        let changeable = sense(&MODE, PageControl::Changeable, (ALL, 0xff), SHORT).unwrap();
        assert_eq!(changeable[4..].iter().map(|byte| byte.count_ones()).sum::<u32>(), {
            let headers: u32 = [(CACHING, 18_u8), (CONTROL, 10), (EXCEPTIONS, 10)]
                .iter()
                .map(|(page, length)| page.count_ones() + length.count_ones())
                .sum();
            headers + 2
        });
        let mut list = sense(&MODE, PageControl::Current, (CACHING, 0), SHORT).unwrap();
        assert_eq!(select(&MODE, false, &list), Ok(MODE));
        list[4 + 2] |= WCE;
        let with_cache = select(&MODE, false, &list).unwrap();
        assert!(with_cache.has_write_cache && !with_cache.had_write_cache);
        assert_eq!(sense(&with_cache, PageControl::Default, (CACHING, 0), SHORT).unwrap()[6] & WCE, 0);
        assert_eq!(sense(&with_cache, PageControl::Current, (CACHING, 0), SHORT).unwrap()[6] & WCE, WCE);
        let mut control = sense(&MODE, PageControl::Current, (CONTROL, 0), SHORT).unwrap();
        control[4 + 4] |= SWP;
        let protected = select(&MODE, false, &control).unwrap();
        assert!(protected.is_write_protected);
        assert_eq!(sense(&protected, PageControl::Current, (CONTROL, 0), SHORT).unwrap()[2], 0x90, "WP");
        list[4 + 3] = 1;
        assert!(select(&MODE, false, &list).is_err(), "nothing else");
    }

    #[test]
    fn a_thin_unit_has_threshold_pages() {
        let thresholds = Some(Thresholds::at([80, 90, 95], world::ByteCount(10 << 30)));
        let mode = ModeSettings { thresholds, had_thresholds: thresholds, ..MODE };
        for (page, sub) in [(RECOVERY, 0), (EXCEPTIONS, PROVISIONING)] {
            assert!(sense(&MODE, PageControl::Current, (page, sub), SHORT).is_err(), "others have none");
            let mut list = sense(&mode, PageControl::Current, (page, sub), SHORT).unwrap();
            assert_eq!(select(&mode, false, &list), Ok(mode));
            assert_eq!(sense(&mode, PageControl::Default, (page, sub), SHORT).as_ref(), Ok(&list));
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
        let plain = sense(&mode, PageControl::Current, (ALL, 0), SHORT).unwrap();
        let all = sense(&mode, PageControl::Current, (ALL, 0xff), SHORT).unwrap();
        assert_eq!((plain.len(), all.len()), (4 + 12 + 20 + 12 + 12, plain.len() + 40));
        assert_eq!(select(&mode, false, &all), Ok(mode));
        for length in 1..all.len() {
            // Must not panic at any length.
            let _ = select(&mode, false, &all[..length]);
        }
    }

    #[test]
    fn what_is_cut_or_unknown_is_refused() {
        let list =
            sense(&MODE, PageControl::Current, (ALL, 0), ModeListFormat { is_long: true, descriptor: None })
                .unwrap();
        assert_eq!(select(&MODE, true, &list), Ok(MODE));
        assert_eq!(select(&MODE, true, &[]), Ok(MODE), "no list asks for nothing");
        for length in 1..list.len() {
            let cut = select(&MODE, true, &list[..length]);
            let whole_pages = [8, 28, 40].contains(&length);
            assert_eq!(cut.is_ok(), whole_pages, "{length} bytes of it");
        }
        assert!(sense(&MODE, PageControl::Saved, (ALL, 0), SHORT).is_err());
        assert!(sense(&MODE, PageControl::Current, (0x01, 0), SHORT).is_err());
        assert!(sense(&MODE, PageControl::Current, (CACHING, 1), SHORT).is_err());
    }
}
