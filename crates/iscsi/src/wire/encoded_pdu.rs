//! PDUs ready to be sent. Their data segments are sent from the buffers they lie in, without a copy.

use super::pdu::{DATA_BYTES_MAX, Digests, HEADER_BYTES, digest, padding};
use std::io::{self, IoSlice};
use tokio::io::AsyncWrite;
use world::{network::write_slices, payload::Payload};

pub struct EncodedPdu {
    /// The basic header segment and its digest.
    head: Vec<u8>,
    payload: Payload,
    /// The padding of the data segment and its digest.
    tail: Vec<u8>,
}

impl EncodedPdu {
    /// Encodes a header and its data segment; writes the DataSegmentLength into the header.
    ///
    /// # Panics
    ///
    /// If the data segment is longer than the 24 bits of DataSegmentLength can say.
    pub fn new(mut header: [u8; HEADER_BYTES], payload: Payload, digests: Digests) -> Self {
        let pieces = || payload.iter().map(|(buffer, range)| &buffer[range.clone()]);
        let length: usize = pieces().map(<[u8]>::len).sum();
        assert!(length <= DATA_BYTES_MAX, "a header has 24 bits for it");
        header[4] = 0;
        header[5..8].copy_from_slice(&(length as u32).to_be_bytes()[1..]);
        let mut head = Vec::with_capacity(HEADER_BYTES + 4);
        head.extend(header);
        if digests.header {
            head.extend(digest([&head[..]]));
        }
        let mut tail = vec![0; padding(length)];
        if digests.data && length > 0 {
            let all = digest(pieces().chain([&tail[..]]));
            tail.extend(all);
        }
        Self { head, payload, tail }
    }

    /// Bytes on the wire, digests and padding included.
    pub fn bytes(&self) -> usize {
        let data: usize = self.payload.iter().map(|(_, range)| range.len()).sum();
        self.head.len() + data + self.tail.len()
    }

    fn slices(&self) -> impl Iterator<Item = IoSlice<'_>> {
        let data = self.payload.iter().map(|(buffer, range)| &buffer[range.clone()]);
        let all = [&self.head[..]].into_iter().chain(data).chain([&self.tail[..]]);
        all.filter(|piece| !piece.is_empty()).map(IoSlice::new)
    }
}

/// Sends `pdus` in order, in as few system calls as possible.
///
/// # Errors
///
/// The connection broke.
pub async fn write_pdus(writer: &mut (impl AsyncWrite + Unpin), pdus: &[EncodedPdu]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = pdus.iter().flat_map(EncodedPdu::slices).collect();
    write_slices(writer, &mut slices).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::pdu::Pdu;
    use std::sync::Arc;
    use world::Buffer;

    #[test]
    fn an_encoded_pdu_equals_its_pdu() {
        let data: Vec<u8> = (0..5003_u32).map(|number| number as u8).collect();
        let buffers = [0..4096, 4096..5003].map(|range| Arc::new(Buffer::copy_of(&data[range])));
        for length in [0, 1, 4, 4095, 5003] {
            let payload: Payload = buffers
                .iter()
                .zip([0, 4096])
                .map(|(buffer, first)| (Arc::clone(buffer), 0..buffer.len().min(length.max(first) - first)))
                .collect();
            for (header, data_too) in [(false, false), (true, false), (false, true), (true, true)] {
                let digests = Digests { header, data: data_too };
                let encoded = EncodedPdu::new([7; HEADER_BYTES], payload.clone(), digests);
                let sent: Vec<u8> = encoded.slices().flat_map(|slice| slice.to_vec()).collect();
                let pdu = Pdu::new([7; HEADER_BYTES], data[..length].to_vec());
                assert_eq!(sent, pdu.encode(digests), "{length} bytes");
                assert_eq!(encoded.bytes(), sent.len());
            }
        }
    }
}
