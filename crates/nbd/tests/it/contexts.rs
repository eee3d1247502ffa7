//! Metadata contexts, over a client that speaks the protocol byte by byte.

use crate::scene::{SIZE, Scene, export, start, uri};
use nbd::{
    DirtyBitmap, DirtyBitmaps, DirtyExtent, Export,
    wire::{
        handshake::{
            ContextRequest, InfoRequest, OptionHead, OptionReplyHead, handshake_flag, option, reply,
        },
        transmission::{ReplyHead, Request, RequestType, chunk, command_flag},
    },
};
use std::rc::Rc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{
    ByteCount, ByteOffset, IoResult, LocalFuture, Stream,
    sim::{NetworkOptions, SimLimits, SimNetwork},
};

/// Every second 4 KiB are dirty, from an offset on.
struct Stripes(u64);

/// Bytes of a stripe.
const STRIPE: u64 = 4096;

impl DirtyBitmap for Stripes {
    fn extents(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<Vec<DirtyExtent>>> {
        let (mut extents, mut at, end) = (Vec::new(), at.0, at.0 + length.0);
        while at < end {
            let next = ((at / STRIPE + 1) * STRIPE).min(end);
            let is_dirty = at >= self.0 && (at / STRIPE) % 2 == 1;
            extents.push(DirtyExtent { length: ByteCount(next - at), is_dirty });
            at = next;
        }
        Box::pin(async move { Ok(extents) })
    }
}

struct Bitmaps;

impl DirtyBitmaps for Bitmaps {
    fn names(&self) -> Vec<String> {
        let many = (0..40).map(|number| format!("many-{number}"));
        ["since-a".to_owned(), "since-b".to_owned()].into_iter().chain(many).collect()
    }

    fn find(&self, name: &str) -> Option<Rc<dyn DirtyBitmap>> {
        let offset = if name == "since-b" { SIZE / 2 } else { 0 };
        self.names()
            .iter()
            .any(|known| known == name)
            .then(|| Rc::new(Stripes(offset)) as Rc<dyn DirtyBitmap>)
    }
}

/// The export with bitmaps `since-a`, `since-b` and forty others.
pub fn with_bitmaps(export: Export) -> Export {
    Export { bitmaps: Some(Rc::new(Bitmaps)), ..export }
}

/// A connection.
struct RawClient(Stream);

/// Replies to an option: type and data.
type Replies = Vec<(u32, Vec<u8>)>;

impl RawClient {
    async fn connect(network: &SimNetwork) -> Self {
        let mut stream = network.host("client").connect(&uri("").address).await.unwrap();
        stream.read_exact(&mut [0; 18]).await.unwrap();
        let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        stream.write_all(&u32::from(flags).to_be_bytes()).await.unwrap();
        Self(stream)
    }

    async fn option(&mut self, asked: u32, data: &[u8]) -> Replies {
        self.0.write_all(&OptionHead::write(asked, data)).await.unwrap();
        self.0.flush().await.unwrap();
        let mut replies = Vec::new();
        loop {
            let mut head = [0; OptionReplyHead::BYTES];
            self.0.read_exact(&mut head).await.unwrap();
            let head = OptionReplyHead::read(&head).unwrap();
            let mut data = vec![0; head.length as usize];
            self.0.read_exact(&mut data).await.unwrap();
            replies.push((head.reply, data));
            if head.reply == reply::ACK || head.reply & reply::IS_ERROR != 0 {
                return replies;
            }
        }
    }

    /// Ids and names of contexts, and how the reply ended.
    async fn contexts(&mut self, asked: u32, queries: &[&str]) -> (Vec<(u32, String)>, u32) {
        let queries = queries.iter().map(|query| (*query).to_owned()).collect();
        let request = ContextRequest { name: "mail".to_owned(), queries };
        let mut replies = self.option(asked, &request.write()).await;
        let (end, _) = replies.pop().unwrap();
        let context = |(kind, data): (u32, Vec<u8>)| {
            assert_eq!(kind, reply::META_CONTEXT);
            let id = u32::from_be_bytes(data[..4].try_into().unwrap());
            (id, String::from_utf8(data[4..].to_vec()).unwrap())
        };
        (replies.into_iter().map(context).collect(), end)
    }

    async fn go(&mut self) {
        let wanted = InfoRequest { name: "mail".to_owned(), wanted: vec![] };
        assert_eq!(self.option(option::GO, &wanted.write()).await.last().unwrap().0, reply::ACK);
    }

    /// Ids and extents of a block status, or the error.
    async fn status(
        &mut self,
        offset: u64,
        length: u32,
        flags: u16,
    ) -> Result<Vec<(u32, Vec<[u32; 2]>)>, u32> {
        let request = Request { flags, command: RequestType::BlockStatus, cookie: 5, offset, length };
        self.0.write_all(&request.write()).await.unwrap();
        self.0.flush().await.unwrap();
        let mut chunks = Vec::new();
        loop {
            let mut head = [0; ReplyHead::CHUNK_BYTES];
            self.0.read_exact(&mut head).await.unwrap();
            let Some(ReplyHead::Chunk { cookie: 5, is_done, kind, length }) = ReplyHead::read(&head) else {
                panic!("a chunk of the request")
            };
            let mut data = vec![0; length as usize];
            self.0.read_exact(&mut data).await.unwrap();
            let number = |at: usize| u32::from_be_bytes(data[at..at + 4].try_into().unwrap());
            if kind == chunk::ERROR {
                return Err(number(0));
            }
            assert_eq!((kind, length % 8), (chunk::BLOCK_STATUS, 4));
            let extents = (4..length as usize).step_by(8).map(|at| [number(at), number(at + 4)]);
            chunks.push((number(0), extents.collect()));
            if is_done {
                return Ok(chunks);
            }
        }
    }
}

fn run(main: impl AsyncFnOnce(SimNetwork) + 'static) {
    let Scene { mut simulation, drive, network } = Scene::new(3, NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let other = Export { name: "other".to_owned(), ..export("other", &drive) };
        start(&world, &network, vec![with_bitmaps(export("mail", &drive)), other]).await;
        main(network).await;
    });
    run.completed();
}

const SINCE_A: &str = "qemu:dirty-bitmap:since-a";
const SINCE_B: &str = "qemu:dirty-bitmap:since-b";

#[test]
fn contexts_are_listed_by_wildcards_and_selected_by_their_names() {
    run(async |network| {
        let mut client = RawClient::connect(&network).await;
        let early = client.contexts(option::LIST_META_CONTEXT, &[]).await;
        assert_eq!(early, (vec![], reply::INVALID), "structured replies come first");
        client.option(option::STRUCTURED_REPLY, &[]).await;
        for (queries, count) in [
            (&[][..], 43),
            (&["base:"], 1),
            (&["qemu:"], 42),
            (&["qemu:dirty-bitmap:", SINCE_A], 42),
            (&[SINCE_A, SINCE_A], 1),
            (&["qemu:dirty-bitmap:none", "x-other:this", "base"], 0),
        ] {
            let (listed, end) = client.contexts(option::LIST_META_CONTEXT, queries).await;
            assert_eq!((listed.len(), end), (count, reply::ACK), "{queries:?}");
            assert!(listed.iter().all(|(id, _)| *id == 0));
        }
        for queries in [&[][..], &["base:"], &["qemu:", "qemu:dirty-bitmap:"], &["qemu:dirty-bitmap:since"]] {
            let selected = client.contexts(option::SET_META_CONTEXT, queries).await;
            assert_eq!(selected, (vec![], reply::ACK), "{queries:?} names no context");
        }
        let (selected, _) =
            client.contexts(option::SET_META_CONTEXT, &[SINCE_A, "base:allocation", SINCE_A]).await;
        assert_eq!(selected, [(1, "base:allocation".to_owned()), (2, SINCE_A.to_owned())]);
        let many: Vec<String> = (0..17).map(|number| format!("qemu:dirty-bitmap:many-{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(client.contexts(option::SET_META_CONTEXT, &many).await, (vec![], reply::TOO_BIG));
        client.go().await;
        assert_eq!(client.status(0, 4096, 0).await, Err(22), "a selection that failed leaves none");
    });
}

#[test]
fn block_status_has_a_chunk_for_each_selected_context() {
    run(async |network| {
        let mut client = RawClient::connect(&network).await;
        client.option(option::STRUCTURED_REPLY, &[]).await;
        client.contexts(option::SET_META_CONTEXT, &["base:allocation", SINCE_A, SINCE_B]).await;
        client.go().await;
        let found = client.status(2048, 8192, 0).await.unwrap();
        let dirty = vec![[2048, 0], [4096, 1], [2048, 0]];
        assert_eq!(found, [(1, vec![[8192, 0]]), (2, dirty), (3, vec![[2048, 0], [4096, 0], [2048, 0]])]);
        let found = client.status(4096, 8192, command_flag::REQ_ONE).await.unwrap();
        assert_eq!(found, [(1, vec![[8192, 0]]), (2, vec![[4096, 1]]), (3, vec![[4096, 0]])]);
        for (offset, length) in [(SIZE, 512), (SIZE - 512, 1024), (0, 0), (1, 512), (u64::MAX - 511, 512)] {
            assert_eq!(client.status(offset, length, 0).await, Err(22), "{offset} {length}");
        }
        let found = client.status(0, SIZE as u32, 0).await.unwrap();
        assert_eq!(found[1].1.len() as u64, SIZE / STRIPE);
    });
}

#[test]
fn a_selection_counts_for_its_export_and_until_the_next_one() {
    run(async |network| {
        // Another export.
        let mut client = RawClient::connect(&network).await;
        client.option(option::STRUCTURED_REPLY, &[]).await;
        let request =
            ContextRequest { name: "other".to_owned(), queries: vec!["base:allocation".to_owned()] };
        client.option(option::SET_META_CONTEXT, &request.write()).await;
        client.go().await;
        assert_eq!(client.status(0, 4096, 0).await, Err(22));
        // Option data that is too long.
        let mut client = RawClient::connect(&network).await;
        client.option(option::STRUCTURED_REPLY, &[]).await;
        client.contexts(option::SET_META_CONTEXT, &[SINCE_A]).await;
        let refused = client.option(option::SET_META_CONTEXT, &[0; 20_000]).await;
        assert_eq!(refused.last().unwrap().0, reply::TOO_BIG);
        client.go().await;
        assert_eq!(client.status(0, 4096, 0).await, Err(22));
    });
}
