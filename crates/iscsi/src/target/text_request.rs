//! Text requests: SendTargets.
//!
//! An answer longer than the initiator's MaxRecvDataSegmentLength is sent in parts, each requested by an
//! empty text request (RFC 7143, 11.10 and 11.11).

use super::{
    TargetPortals,
    connection::{Connection, PROTOCOL_ERROR},
    send_queue::StatSn,
};
use crate::{
    session::login::PORTAL_GROUP,
    wire::{
        header::{FINAL, NO_TAG, PduHeader, Text, TextResponse},
        pdu::Pdu,
        text,
    },
};

/// The C bit (RFC 7143, 11.10.2 and 11.11.2).
const CONTINUES: u8 = 0x40;

/// The part of an answer that is not sent yet.
pub(super) struct PartialText {
    /// The initiator requests the next part with this TTT.
    ttt: u32,
    bytes: Vec<u8>,
}

impl Connection {
    /// Answers SendTargets, or sends the next part of its answer.
    pub(super) fn answer_text(&self, pdu: &Pdu) {
        let request = Text::of(&pdu.header);
        let rest = self.partial_text.take();
        let answer = match request.ttt.get() {
            _ if request.flags & CONTINUES != 0 => None,
            NO_TAG => text::read(&pdu.data).map(|pairs| text::write(self.answers(pairs))),
            // Another TTT, or data in a continuation, ends the exchange.
            ttt => rest.filter(|rest| rest.ttt == ttt && pdu.data.is_empty()).map(|rest| rest.bytes),
        };
        match answer {
            Some(answer) => self.send_text(&request, answer),
            None => self.reject(&pdu.header, PROTOCOL_ERROR),
        }
    }

    fn answers(&self, pairs: Vec<text::Pair>) -> Vec<text::Pair> {
        let mut answers = Vec::new();
        for (key, value) in pairs {
            if key != "SendTargets" {
                answers.push((key, "NotUnderstood".to_owned()));
                continue;
            }
            let wanted = if value.is_empty() { self.target_name.clone() } else { value };
            let seen = self.targets.names_visible_to(&self.initiator).into_iter();
            for name in seen.filter(|name| wanted == "All" || name.eq_ignore_ascii_case(&wanted)) {
                answers.push(("TargetName".to_owned(), name.to_owned()));
                let portals = self.targets.portals_of(name);
                let group = portals.map_or(PORTAL_GROUP, |portals| portals.group);
                answers.push(("TargetAddress".to_owned(), format!("{},{group}", self.portal)));
                if let Some(TargetPortals { others, other_group, .. }) = portals {
                    let addresses = others.iter().map(|other| format!("{other},{other_group}"));
                    answers.extend(addresses.map(|address| ("TargetAddress".to_owned(), address)));
                }
            }
        }
        answers
    }

    /// Sends as much of `answer` as fits into one PDU and keeps the rest.
    fn send_text(&self, request: &Text, mut answer: Vec<u8>) {
        let rest = answer.split_off(part_bytes(&answer, self.parameters.send_bytes_max as usize));
        let is_last = rest.is_empty();
        let ttt = if is_last { NO_TAG } else { self.next_ttt() };
        let response = TextResponse {
            flags: if is_last { FINAL } else { CONTINUES },
            itt: request.itt,
            ttt: ttt.into(),
            ..TextResponse::empty()
        };
        self.send_queue.send(&response, StatSn::Advance, &answer);
        if !is_last {
            self.partial_text.replace(Some(PartialText { ttt, bytes: rest }));
        }
    }
}

/// Length of the first part: whole pairs, as many as fit. A pair longer than `room` is split.
fn part_bytes(text: &[u8], room: usize) -> usize {
    if text.len() <= room {
        return text.len();
    }
    text[..room].iter().rposition(|&byte| byte == 0).map_or(room, |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_text_end_after_a_whole_pair() {
        let text = b"a=1\0bc=2\0";
        assert_eq!([9, 8, 5, 4, 3].map(|room| part_bytes(text, room)), [9, 4, 4, 4, 3]);
        assert_eq!(part_bytes(b"", 512), 0);
    }
}
