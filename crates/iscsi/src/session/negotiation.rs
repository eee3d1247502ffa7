//! What both ends of a session agree on: each key by the rule it has (RFC 7143, 6.2 and 13).
//!
//! Invariants of [`Agreed`]:
//!
//! 1. A first burst is no longer than a burst.
//! 2. One connection, error recovery level 0, data in order: what this target does.

use std::ops::RangeInclusive;

/// Values in force. At first those of the standard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// CRC-32C of headers.
    pub header_digest: bool,
    /// CRC-32C of data.
    pub data_digest: bool,
    /// Data of a command come only when they are asked for.
    pub initial_r2t: bool,
    /// Data may come with their command.
    pub immediate_data: bool,
    /// Bytes of data in one unit that the other end takes.
    pub send_bytes_max: u32,
    /// Bytes of data in one unit that we take.
    pub receive_bytes_max: u32,
    /// Bytes of one burst.
    pub burst_bytes_max: u32,
    /// Bytes that come without being asked for.
    pub first_burst_bytes_max: u32,
    /// Requests for data of one command at once.
    pub requests_max: u32,
    /// Seconds before a lost connection is made again, and for which its tasks are kept.
    pub time_to_wait_s: u32,
    /// See [`Agreed::time_to_wait_s`].
    pub time_to_retain_s: u32,
}

/// Bytes of data in one unit that we take.
pub const RECEIVE_BYTES: u32 = 256 * 1024;
/// The longest burst we take.
const BURST_BYTES: u32 = 16 * 1024 * 1024 - 1;
/// Requests for data of one command at once that we make.
const REQUESTS: u32 = 8;

impl Default for Agreed {
    fn default() -> Self {
        Self {
            header_digest: false,
            data_digest: false,
            initial_r2t: true,
            immediate_data: true,
            send_bytes_max: 8192,
            receive_bytes_max: 8192,
            burst_bytes_max: 262_144,
            first_burst_bytes_max: 65_536,
            requests_max: 1,
            time_to_wait_s: 2,
            time_to_retain_s: 20,
        }
    }
}

/// The rule by which two offers make one value.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// The first of a list that we can.
    Choice(&'static [&'static str]),
    /// Yes if both say so.
    And(bool),
    /// Yes if one says so.
    Or(bool),
    /// The lesser of two numbers.
    Least(u32, Bounds),
    /// The greater.
    Greatest(u32, Bounds),
    /// Each says its own.
    Declared(Bounds),
    /// Said, and not answered.
    Told,
    /// Obsolete, and answered with "No", as RFC 7143, 13.25 allows beside "Reject": older initiators expect a value.
    ObsoleteFlag,
    /// Obsolete, and answered with "Reject", as 13.25 demands.
    ObsoleteNumber,
}

/// Bounds of a number.
#[derive(Clone, Copy, Debug)]
struct Bounds(u32, u32);

impl Bounds {
    fn range(self) -> RangeInclusive<u32> {
        self.0..=self.1
    }
}

const LENGTHS: Bounds = Bounds(512, (1 << 24) - 1);
const SHORT: Bounds = Bounds(0, 3600);
const COUNTS: Bounds = Bounds(1, 65_535);

/// A key of login negotiation.
struct Key {
    name: &'static str,
    rule: Rule,
    /// Sections 13.x with "Irrelevant when: SessionType=Discovery". Every other key is negotiated in a discovery session
    /// as in a normal one: open-iscsi refuses a target that calls ErrorRecoveryLevel irrelevant there.
    is_irrelevant_in_discovery: bool,
}

const fn always(name: &'static str, rule: Rule) -> Key {
    Key { name, rule, is_irrelevant_in_discovery: false }
}

const fn normal_only(name: &'static str, rule: Rule) -> Key {
    Key { name, rule, is_irrelevant_in_discovery: true }
}

/// Every key of RFC 7143, 13 that is sent during login, in the order of its sections; then those of 13.25, which are
/// obsolete. Keys of authentication (section 12) are the login's.
const KEYS: [Key; 24] = [
    always("HeaderDigest", Rule::Choice(&["CRC32C", "None"])),
    always("DataDigest", Rule::Choice(&["CRC32C", "None"])),
    normal_only("MaxConnections", Rule::Least(1, COUNTS)),
    always("TargetName", Rule::Told),
    always("InitiatorName", Rule::Told),
    always("InitiatorAlias", Rule::Told),
    normal_only("InitialR2T", Rule::Or(false)),
    normal_only("ImmediateData", Rule::And(true)),
    always("MaxRecvDataSegmentLength", Rule::Declared(LENGTHS)),
    normal_only("MaxBurstLength", Rule::Least(BURST_BYTES, LENGTHS)),
    normal_only("FirstBurstLength", Rule::Least(RECEIVE_BYTES, LENGTHS)),
    always("DefaultTime2Wait", Rule::Greatest(2, SHORT)),
    always("DefaultTime2Retain", Rule::Least(0, SHORT)),
    normal_only("MaxOutstandingR2T", Rule::Least(REQUESTS, COUNTS)),
    normal_only("DataPDUInOrder", Rule::Or(true)),
    normal_only("DataSequenceInOrder", Rule::Or(true)),
    always("ErrorRecoveryLevel", Rule::Least(0, Bounds(0, 2))),
    always("SessionType", Rule::Told),
    normal_only("TaskReporting", Rule::Choice(&["RFC3720"])),
    normal_only("iSCSIProtocolLevel", Rule::Least(1, Bounds(0, 31))),
    always("IFMarker", Rule::ObsoleteFlag),
    always("OFMarker", Rule::ObsoleteFlag),
    always("IFMarkInt", Rule::ObsoleteNumber),
    always("OFMarkInt", Rule::ObsoleteNumber),
];

fn key_named(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// A number, in decimal or hexadecimal (RFC 7143, 6.1).
pub fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn yes(text: &str) -> Option<bool> {
    match text {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

impl Agreed {
    /// What we answer to `key=offer`, and take for agreed; none if nothing is answered.
    ///
    /// `is_normal` tells a normal session from a discovery session, in which some keys are irrelevant.
    pub fn answer(&mut self, key: &str, offer: &str, is_normal: bool) -> Option<String> {
        let Some(known) = key_named(key) else { return Some("NotUnderstood".to_owned()) };
        if !is_normal && known.is_irrelevant_in_discovery {
            return Some("Irrelevant".to_owned());
        }
        let rule = known.rule;
        let rejected = || Some("Reject".to_owned());
        match rule {
            Rule::Told => None,
            Rule::ObsoleteFlag => Some("No".to_owned()),
            Rule::ObsoleteNumber => rejected(),
            Rule::Choice(ours) => {
                let Some(chosen) = offer.split(',').find(|offered| ours.contains(offered)) else {
                    return rejected();
                };
                self.choose(key, chosen);
                Some(chosen.to_owned())
            }
            Rule::And(ours) | Rule::Or(ours) => {
                let Some(theirs) = yes(offer) else { return rejected() };
                let agreed = if matches!(rule, Rule::And(_)) { ours && theirs } else { ours || theirs };
                self.settle(key, u32::from(agreed));
                Some(if agreed { "Yes" } else { "No" }.to_owned())
            }
            Rule::Least(ours, bounds) | Rule::Greatest(ours, bounds) => {
                let Some(theirs) = number(offer).filter(|theirs| bounds.range().contains(theirs)) else {
                    return rejected();
                };
                let is_least = matches!(rule, Rule::Least(..));
                let agreed = if is_least { ours.min(theirs) } else { ours.max(theirs) };
                let agreed = self.settle(key, agreed);
                Some(agreed.to_string())
            }
            Rule::Declared(bounds) => {
                let Some(theirs) = number(offer).filter(|theirs| bounds.range().contains(theirs)) else {
                    return rejected();
                };
                self.send_bytes_max = theirs;
                self.receive_bytes_max = RECEIVE_BYTES;
                Some(RECEIVE_BYTES.to_string())
            }
        }
    }

    /// What the other end answers to our `offer`, or says of itself unasked, taken for agreed; false if the rule of the key does
    /// not allow it.
    pub fn answered(&mut self, key: &str, offer: Option<&str>, answer: &str) -> bool {
        let Some(Key { rule, .. }) = key_named(key) else { return false };
        match (*rule, offer) {
            (Rule::Told, None) => true,
            (Rule::Declared(bounds), _) => {
                let declared = number(answer).filter(|declared| bounds.range().contains(declared));
                self.send_bytes_max = declared.unwrap_or(self.send_bytes_max);
                declared.is_some()
            }
            (_, None) | (Rule::Told | Rule::ObsoleteFlag | Rule::ObsoleteNumber, Some(_)) => false,
            // What we said stays what it is by default.
            (Rule::And(_) | Rule::Or(_) | Rule::Least(..) | Rule::Greatest(..), Some(_))
                if matches!(answer, "Irrelevant" | "NotUnderstood") =>
            {
                true
            }
            (Rule::Choice(_), Some(offer)) => {
                let is_offered = offer.split(',').any(|offered| offered == answer);
                if is_offered {
                    self.choose(key, answer);
                }
                is_offered
            }
            (Rule::And(_) | Rule::Or(_), Some(offer)) => {
                let (Some(offer), Some(agreed)) = (yes(offer), yes(answer)) else { return false };
                let is_allowed =
                    if matches!(rule, Rule::And(_)) { offer || !agreed } else { !offer || agreed };
                if is_allowed {
                    self.settle(key, u32::from(agreed));
                }
                is_allowed
            }
            (Rule::Least(_, bounds) | Rule::Greatest(_, bounds), Some(offer)) => {
                let (Some(offer), Some(agreed)) = (number(offer), number(answer)) else { return false };
                let is_least = matches!(rule, Rule::Least(..));
                let is_bound = if is_least { agreed <= offer } else { agreed >= offer };
                let is_allowed = is_bound && bounds.range().contains(&agreed);
                if is_allowed {
                    self.settle(key, agreed);
                }
                is_allowed
            }
        }
    }

    fn choose(&mut self, key: &str, chosen: &str) {
        let is_crc = chosen == "CRC32C";
        match key {
            "HeaderDigest" => self.header_digest = is_crc,
            "DataDigest" => self.data_digest = is_crc,
            _ => {}
        }
    }

    /// Takes a value; gives it as it is in force.
    fn settle(&mut self, key: &str, value: u32) -> u32 {
        match key {
            "InitialR2T" => self.initial_r2t = value == 1,
            "ImmediateData" => self.immediate_data = value == 1,
            "MaxBurstLength" => {
                self.burst_bytes_max = value;
                self.first_burst_bytes_max = self.first_burst_bytes_max.min(value);
            }
            "FirstBurstLength" => {
                self.first_burst_bytes_max = value.min(self.burst_bytes_max);
                return self.first_burst_bytes_max;
            }
            "MaxOutstandingR2T" => self.requests_max = value,
            "DefaultTime2Wait" => self.time_to_wait_s = value,
            "DefaultTime2Retain" => self.time_to_retain_s = value,
            _ => {}
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(offers: &[(&str, &str)]) -> (Agreed, Vec<Option<String>>) {
        let mut agreed = Agreed::default();
        let answers = offers.iter().map(|(key, offer)| agreed.answer(key, offer, true)).collect();
        (agreed, answers)
    }

    #[test]
    fn each_key_is_agreed_on_by_its_rule() {
        for (key, offer, answer) in [
            ("HeaderDigest", "CRC32C,None", "CRC32C"),
            ("DataDigest", "None,CRC32C", "None"),
            ("DataDigest", "MD5", "Reject"),
            ("InitialR2T", "No", "No"),
            ("InitialR2T", "Yes", "Yes"),
            ("ImmediateData", "No", "No"),
            ("DataPDUInOrder", "No", "Yes"),
            ("MaxBurstLength", "0x40000", "262144"),
            ("MaxBurstLength", "16777215", "16777215"),
            ("MaxBurstLength", "511", "Reject"),
            ("FirstBurstLength", "65536", "65536"),
            ("MaxConnections", "8", "1"),
            ("ErrorRecoveryLevel", "2", "0"),
            ("DefaultTime2Wait", "0", "2"),
            ("DefaultTime2Retain", "20", "0"),
            ("MaxOutstandingR2T", "1", "1"),
            ("MaxOutstandingR2T", "many", "Reject"),
            ("OFMarker", "Yes", "No"),
            ("IFMarkInt", "2048~65535", "Reject"),
            ("X-com.example.key", "1", "NotUnderstood"),
        ] {
            assert_eq!(answers(&[(key, offer)]).1, [Some(answer.to_owned())], "{key}={offer}");
        }
        assert_eq!(answers(&[("InitiatorName", "iqn.x")]).1, [None]);
    }

    #[test]
    fn what_is_agreed_is_in_force() {
        let (agreed, _) = answers(&[
            ("HeaderDigest", "CRC32C"),
            ("InitialR2T", "No"),
            ("MaxRecvDataSegmentLength", "4096"),
            ("FirstBurstLength", "131072"),
            ("MaxBurstLength", "65536"),
            ("MaxOutstandingR2T", "4"),
        ]);
        assert!(agreed.header_digest && !agreed.data_digest && !agreed.initial_r2t && agreed.immediate_data);
        assert_eq!((agreed.send_bytes_max, agreed.receive_bytes_max), (4096, RECEIVE_BYTES));
        assert_eq!((agreed.burst_bytes_max, agreed.first_burst_bytes_max), (65_536, 65_536));
        assert_eq!(agreed.requests_max, 4);
    }

    #[test]
    fn what_the_other_end_answers_keeps_to_the_rule_or_is_refused() {
        let answered = |key, offer, answer| Agreed::default().answered(key, offer, answer);
        for (key, offer, answer, is_right) in [
            ("HeaderDigest", Some("CRC32C,None"), "None", true),
            ("HeaderDigest", Some("None"), "CRC32C", false),
            ("InitialR2T", Some("No"), "Yes", true),
            ("InitialR2T", Some("Yes"), "No", false),
            ("ImmediateData", Some("Yes"), "No", true),
            ("ImmediateData", Some("No"), "Yes", false),
            ("MaxBurstLength", Some("262144"), "65536", true),
            ("MaxBurstLength", Some("262144"), "524288", false),
            ("MaxBurstLength", Some("262144"), "0", false),
            ("MaxBurstLength", Some("262144"), "Reject", false),
            ("MaxConnections", Some("1"), "Irrelevant", true),
            ("DefaultTime2Wait", Some("2"), "5", true),
            ("DefaultTime2Wait", Some("2"), "1", false),
            ("MaxRecvDataSegmentLength", None, "8192", true),
            ("MaxRecvDataSegmentLength", None, "8", false),
            ("ErrorRecoveryLevel", None, "0", false),
            ("Unheard-of", None, "1", false),
        ] {
            assert_eq!(answered(key, offer, answer), is_right, "{key}: {offer:?} answered with {answer}");
        }
        let mut agreed = Agreed::default();
        assert!(agreed.answered("MaxBurstLength", Some("262144"), "16384"));
        assert_eq!((agreed.burst_bytes_max, agreed.first_burst_bytes_max), (16_384, 16_384));
    }

    #[test]
    fn discovery_negotiates_every_key_that_the_rfc_does_not_call_irrelevant_there() {
        let mut agreed = Agreed::default();
        for (key, offer, answer) in [
            ("HeaderDigest", "None,CRC32C", "None"),
            ("DataDigest", "None", "None"),
            ("MaxConnections", "1", "Irrelevant"),
            ("InitialR2T", "Yes", "Irrelevant"),
            ("ImmediateData", "Yes", "Irrelevant"),
            ("MaxRecvDataSegmentLength", "8192", "262144"),
            ("MaxBurstLength", "65536", "Irrelevant"),
            ("FirstBurstLength", "65536", "Irrelevant"),
            ("DefaultTime2Wait", "2", "2"),
            ("DefaultTime2Retain", "20", "0"),
            ("MaxOutstandingR2T", "1", "Irrelevant"),
            ("DataPDUInOrder", "Yes", "Irrelevant"),
            ("DataSequenceInOrder", "Yes", "Irrelevant"),
            ("ErrorRecoveryLevel", "0", "0"),
            ("ErrorRecoveryLevel", "2", "0"),
            ("TaskReporting", "FastAbort,RFC3720", "Irrelevant"),
            ("iSCSIProtocolLevel", "1", "Irrelevant"),
            ("IFMarker", "No", "No"),
            ("OFMarker", "No", "No"),
            ("IFMarkInt", "1~2048", "Reject"),
            ("OFMarkInt", "1~2048", "Reject"),
            ("X-com.example.key", "1", "NotUnderstood"),
        ] {
            assert_eq!(agreed.answer(key, offer, false).as_deref(), Some(answer), "{key}={offer}");
        }
        for declared in ["InitiatorName", "InitiatorAlias", "SessionType"] {
            assert_eq!(agreed.answer(declared, "x", false), None, "{declared}");
        }
    }

    #[test]
    fn a_first_burst_is_never_longer_than_a_burst() {
        for seed in 0..200 {
            let mut random = world::Random::new(seed, "offers");
            let mut agreed = Agreed::default();
            for _ in 0..20 {
                let key =
                    ["MaxBurstLength", "FirstBurstLength", "MaxOutstandingR2T"][random.below(3) as usize];
                let offer = (1_u64 << random.below(26)) + random.below(100);
                let answer = agreed.answer(key, &offer.to_string(), true).expect("it is answered");
                assert!(answer == "Reject" || number(&answer).is_some_and(|value| u64::from(value) <= offer));
                assert!(agreed.first_burst_bytes_max <= agreed.burst_bytes_max, "seed {seed}");
            }
        }
    }
}
