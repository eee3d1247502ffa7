//! Negotiation of session parameters: each key by the rule RFC 7143 gives it (6.2 and 13).
//!
//! Invariants of [`SessionParameters`]:
//!
//! 1. FirstBurstLength does not exceed MaxBurstLength.
//! 2. One connection, error recovery level 0, data in order: the target supports nothing else.

use std::ops::RangeInclusive;

/// Parameters in force. The default is RFC 7143's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionParameters {
    pub header_digest: bool,
    pub data_digest: bool,
    pub initial_r2t: bool,
    pub immediate_data: bool,
    /// MaxRecvDataSegmentLength of the other end: the longest data segment we may send.
    pub send_bytes_max: u32,
    /// Our MaxRecvDataSegmentLength.
    pub receive_bytes_max: u32,
    /// MaxBurstLength.
    pub burst_bytes_max: u32,
    /// FirstBurstLength: most bytes of unsolicited data of a command.
    pub first_burst_bytes_max: u32,
    /// MaxOutstandingR2T of a command.
    pub outstanding_r2t_max: u32,
    /// DefaultTime2Wait: seconds to wait before reinstating a lost connection.
    pub time_to_wait_s: u32,
    /// DefaultTime2Retain: seconds for which tasks of a lost connection are kept.
    pub time_to_retain_s: u32,
}

/// The MaxRecvDataSegmentLength we declare.
pub const RECEIVE_BYTES: u32 = 256 * 1024;
/// Largest MaxBurstLength we accept.
const BURST_BYTES: u32 = 16 * 1024 * 1024 - 1;
/// Largest MaxOutstandingR2T we use.
const REQUESTS: u32 = 8;

impl Default for SessionParameters {
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
            outstanding_r2t_max: 1,
            time_to_wait_s: 2,
            time_to_retain_s: 20,
        }
    }
}

/// Result function of a key: it combines both offers into one value.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// The first value of the list that we support.
    List(&'static [&'static str]),
    And(bool),
    Or(bool),
    Minimum(u32, Bounds),
    Maximum(u32, Bounds),
    /// Each end declares its own value.
    DeclarativeNumber(Bounds),
    /// Declared by the initiator and not answered.
    Declarative,
    /// Obsolete; answered with "No", which RFC 7143, 13.25 allows beside "Reject": older initiators expect a
    /// value.
    ObsoleteFlag,
    /// Obsolete; answered with "Reject", as 13.25 demands.
    ObsoleteNumber,
}

/// Smallest and largest valid value.
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

struct TextKey {
    name: &'static str,
    rule: Rule,
    /// Set for keys whose section in RFC 7143 says "Irrelevant when: SessionType=Discovery". All other keys
    /// are negotiated in a discovery session too: open-iscsi rejects a target that answers ErrorRecoveryLevel
    /// with "Irrelevant" there.
    is_irrelevant_in_discovery: bool,
}

const fn always(name: &'static str, rule: Rule) -> TextKey {
    TextKey { name, rule, is_irrelevant_in_discovery: false }
}

const fn normal_only(name: &'static str, rule: Rule) -> TextKey {
    TextKey { name, rule, is_irrelevant_in_discovery: true }
}

/// Every key of RFC 7143, 13 that may be sent during login, in the order of its sections, then the obsolete
/// ones of 13.25. [`login`](super::login) handles the authentication keys of section 12.
const KEYS: [TextKey; 24] = [
    always("HeaderDigest", Rule::List(&["CRC32C", "None"])),
    always("DataDigest", Rule::List(&["CRC32C", "None"])),
    normal_only("MaxConnections", Rule::Minimum(1, COUNTS)),
    always("TargetName", Rule::Declarative),
    always("InitiatorName", Rule::Declarative),
    always("InitiatorAlias", Rule::Declarative),
    normal_only("InitialR2T", Rule::Or(false)),
    normal_only("ImmediateData", Rule::And(true)),
    always("MaxRecvDataSegmentLength", Rule::DeclarativeNumber(LENGTHS)),
    normal_only("MaxBurstLength", Rule::Minimum(BURST_BYTES, LENGTHS)),
    normal_only("FirstBurstLength", Rule::Minimum(RECEIVE_BYTES, LENGTHS)),
    always("DefaultTime2Wait", Rule::Maximum(2, SHORT)),
    always("DefaultTime2Retain", Rule::Minimum(0, SHORT)),
    normal_only("MaxOutstandingR2T", Rule::Minimum(REQUESTS, COUNTS)),
    normal_only("DataPDUInOrder", Rule::Or(true)),
    normal_only("DataSequenceInOrder", Rule::Or(true)),
    always("ErrorRecoveryLevel", Rule::Minimum(0, Bounds(0, 2))),
    always("SessionType", Rule::Declarative),
    normal_only("TaskReporting", Rule::List(&["RFC3720"])),
    normal_only("iSCSIProtocolLevel", Rule::Minimum(1, Bounds(0, 31))),
    always("IFMarker", Rule::ObsoleteFlag),
    always("OFMarker", Rule::ObsoleteFlag),
    always("IFMarkInt", Rule::ObsoleteNumber),
    always("OFMarkInt", Rule::ObsoleteNumber),
];

fn key_named(name: &str) -> Option<&'static TextKey> {
    KEYS.iter().find(|key| key.name == name)
}

/// Parses a numerical value, decimal or hexadecimal (RFC 7143, 6.1).
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

impl SessionParameters {
    /// Negotiates `key=offer` and returns our answer; `None` if the key is declarative and has none.
    ///
    /// `is_normal` is false in a discovery session, where some keys are irrelevant.
    pub fn answer(&mut self, key: &str, offer: &str, is_normal: bool) -> Option<String> {
        let Some(known) = key_named(key) else { return Some("NotUnderstood".to_owned()) };
        if !is_normal && known.is_irrelevant_in_discovery {
            return Some("Irrelevant".to_owned());
        }
        let rule = known.rule;
        let rejected = || Some("Reject".to_owned());
        match rule {
            Rule::Declarative => None,
            Rule::ObsoleteFlag => Some("No".to_owned()),
            Rule::ObsoleteNumber => rejected(),
            Rule::List(ours) => {
                let Some(chosen) = offer.split(',').find(|offered| ours.contains(offered)) else {
                    return rejected();
                };
                self.set_choice(key, chosen);
                Some(chosen.to_owned())
            }
            Rule::And(ours) | Rule::Or(ours) => {
                let Some(theirs) = yes(offer) else { return rejected() };
                let parameters = if matches!(rule, Rule::And(_)) { ours && theirs } else { ours || theirs };
                self.set_value(key, u32::from(parameters));
                Some(if parameters { "Yes" } else { "No" }.to_owned())
            }
            Rule::Minimum(ours, bounds) | Rule::Maximum(ours, bounds) => {
                let Some(theirs) = number(offer).filter(|theirs| bounds.range().contains(theirs)) else {
                    return rejected();
                };
                let is_minimum = matches!(rule, Rule::Minimum(..));
                let parameters = if is_minimum { ours.min(theirs) } else { ours.max(theirs) };
                let parameters = self.set_value(key, parameters);
                Some(parameters.to_string())
            }
            Rule::DeclarativeNumber(bounds) => {
                let Some(theirs) = number(offer).filter(|theirs| bounds.range().contains(theirs)) else {
                    return rejected();
                };
                self.send_bytes_max = theirs;
                self.receive_bytes_max = RECEIVE_BYTES;
                Some(RECEIVE_BYTES.to_string())
            }
        }
    }

    /// Applies the other end's answer to our `offer`, or its own declaration if there was none. Returns false
    /// if the key's rule does not allow the answer.
    pub fn answered(&mut self, key: &str, offer: Option<&str>, answer: &str) -> bool {
        let Some(TextKey { rule, .. }) = key_named(key) else { return false };
        match (*rule, offer) {
            (Rule::Declarative, None) => true,
            (Rule::DeclarativeNumber(bounds), _) => {
                let declared = number(answer).filter(|declared| bounds.range().contains(declared));
                self.send_bytes_max = declared.unwrap_or(self.send_bytes_max);
                declared.is_some()
            }
            (_, None) | (Rule::Declarative | Rule::ObsoleteFlag | Rule::ObsoleteNumber, Some(_)) => false,
            // The default stays in force.
            (Rule::And(_) | Rule::Or(_) | Rule::Minimum(..) | Rule::Maximum(..), Some(_))
                if matches!(answer, "Irrelevant" | "NotUnderstood") =>
            {
                true
            }
            (Rule::List(_), Some(offer)) => {
                let is_offered = offer.split(',').any(|offered| offered == answer);
                if is_offered {
                    self.set_choice(key, answer);
                }
                is_offered
            }
            (Rule::And(_) | Rule::Or(_), Some(offer)) => {
                let (Some(offer), Some(parameters)) = (yes(offer), yes(answer)) else { return false };
                let is_allowed =
                    if matches!(rule, Rule::And(_)) { offer || !parameters } else { !offer || parameters };
                if is_allowed {
                    self.set_value(key, u32::from(parameters));
                }
                is_allowed
            }
            (Rule::Minimum(_, bounds) | Rule::Maximum(_, bounds), Some(offer)) => {
                let (Some(offer), Some(parameters)) = (number(offer), number(answer)) else { return false };
                let is_minimum = matches!(rule, Rule::Minimum(..));
                let is_bound = if is_minimum { parameters <= offer } else { parameters >= offer };
                let is_allowed = is_bound && bounds.range().contains(&parameters);
                if is_allowed {
                    self.set_value(key, parameters);
                }
                is_allowed
            }
        }
    }

    fn set_choice(&mut self, key: &str, chosen: &str) {
        let is_crc = chosen == "CRC32C";
        match key {
            "HeaderDigest" => self.header_digest = is_crc,
            "DataDigest" => self.data_digest = is_crc,
            _ => {}
        }
    }

    /// Stores a value and returns the one in force.
    fn set_value(&mut self, key: &str, value: u32) -> u32 {
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
            "MaxOutstandingR2T" => self.outstanding_r2t_max = value,
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

    fn answers(offers: &[(&str, &str)]) -> (SessionParameters, Vec<Option<String>>) {
        let mut parameters = SessionParameters::default();
        let answers = offers.iter().map(|(key, offer)| parameters.answer(key, offer, true)).collect();
        (parameters, answers)
    }

    #[test]
    fn each_key_is_negotiated_by_its_result_function() {
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
    fn negotiated_values_are_in_force() {
        let (parameters, _) = answers(&[
            ("HeaderDigest", "CRC32C"),
            ("InitialR2T", "No"),
            ("MaxRecvDataSegmentLength", "4096"),
            ("FirstBurstLength", "131072"),
            ("MaxBurstLength", "65536"),
            ("MaxOutstandingR2T", "4"),
        ]);
        assert!(
            parameters.header_digest
                && !parameters.data_digest
                && !parameters.initial_r2t
                && parameters.immediate_data
        );
        assert_eq!((parameters.send_bytes_max, parameters.receive_bytes_max), (4096, RECEIVE_BYTES));
        assert_eq!((parameters.burst_bytes_max, parameters.first_burst_bytes_max), (65_536, 65_536));
        assert_eq!(parameters.outstanding_r2t_max, 4);
    }

    #[test]
    fn answers_against_the_rule_of_their_key_are_refused() {
        let answered = |key, offer, answer| SessionParameters::default().answered(key, offer, answer);
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
        let mut parameters = SessionParameters::default();
        assert!(parameters.answered("MaxBurstLength", Some("262144"), "16384"));
        assert_eq!((parameters.burst_bytes_max, parameters.first_burst_bytes_max), (16_384, 16_384));
    }

    #[test]
    fn discovery_negotiates_every_key_that_the_rfc_does_not_call_irrelevant_there() {
        let mut parameters = SessionParameters::default();
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
            assert_eq!(parameters.answer(key, offer, false).as_deref(), Some(answer), "{key}={offer}");
        }
        for declared in ["InitiatorName", "InitiatorAlias", "SessionType"] {
            assert_eq!(parameters.answer(declared, "x", false), None, "{declared}");
        }
    }

    #[test]
    fn a_first_burst_is_never_longer_than_a_burst() {
        for seed in 0..200 {
            let mut random = world::Random::new(seed, "offers");
            let mut parameters = SessionParameters::default();
            for _ in 0..20 {
                let key =
                    ["MaxBurstLength", "FirstBurstLength", "MaxOutstandingR2T"][random.below(3) as usize];
                let offer = (1_u64 << random.below(26)) + random.below(100);
                let answer = parameters.answer(key, &offer.to_string(), true).expect("it is answered");
                assert!(answer == "Reject" || number(&answer).is_some_and(|value| u64::from(value) <= offer));
                assert!(parameters.first_burst_bytes_max <= parameters.burst_bytes_max, "seed {seed}");
            }
        }
    }
}
