//! The device: what it does with its two queues.

use std::{collections::VecDeque, net::SocketAddrV4, ops::Range, sync::Arc, time::Duration};

use bulkhead_nvme::{Iommu, formats::QueueId};

use crate::{
    Arrived, DATA_BYTES_MAX, FRAME_BYTES_MAX, Outgoing, Wire,
    frame::{self, HEADER_BYTES, HOP, Link, Links, Malformed},
    pattern::Pattern,
    peers::Peers,
    queue::{Chain, Fault, Places, Queue, Way},
    rate::Bucket,
    region::{Part, Region},
    virtio::{NEEDS_CHECKSUM, NET_HEADER_BYTES, NetHeader},
};

/// Most frames that are sent in one step, and most datagrams that are taken of all flows together.
pub const STEP_MAX: u16 = 64;
/// Of a frame, before its data.
const HEADERS: usize = NET_HEADER_BYTES + HEADER_BYTES;
/// How many records are kept; later ones are counted only.
pub const RECORDS_MAX: usize = 256;

/// What becomes of what a flow hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrives {
    /// It is framed into the queue to receive.
    Queue,
    /// It is written into this part of the device's [`Region`], as it says itself.
    Region(Part),
    /// It is dropped.
    Nowhere,
}

/// A flow of the device's.
#[derive(Debug)]
pub struct Flow {
    /// Its link address.
    pub link: Link,
    /// Its address.
    pub local: SocketAddrV4,
    /// Whom it sends to and hears; where there is none, it hears these [`peers`](Self::peers), and answers whom it heard.
    pub remote: Option<SocketAddrV4>,
    /// Who is heard where there is no remote.
    pub peers: Pattern,
    /// What becomes of what it hears.
    pub arrives: Arrives,
    /// How much it may send; nothing says how much where there is none.
    pub bucket: Option<Bucket>,
}

/// Why a frame was dropped that the queue had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is none.
    #[error("a frame that is none: {0}")]
    Malformed(#[from] Malformed),
    /// Its virtio header asks for what is not offered.
    #[error("a header that asks for what is not offered: {0:?}")]
    Header(NetHeader),
    /// It comes from an address that is none of the device's flows.
    #[error("a frame from {0}, which is no flow of the device's")]
    Source(SocketAddrV4),
    /// It goes to whom its flow may not send.
    #[error("a frame from {0} to {1}, whom that flow may not send to")]
    Destination(SocketAddrV4, SocketAddrV4),
}

/// What the device was told to do and did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// A queue made no sense: it is not used any more.
    Fault(Fault),
    /// A frame was dropped.
    Refusal(Refusal),
}

/// What has become of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Sent.
    pub sent: u64,
    /// Taken, and lost by the system.
    pub lost: u64,
    /// Frames that waited since their flow was over its rate.
    pub delayed: u64,
    /// Received.
    pub received: u64,
    /// Received and dropped: too long, or of a peer that is not heard.
    pub dropped: u64,
    /// Written into the region.
    pub written: u64,
    /// To be written into the region, and not: beyond what the flow may write, or no such datagram.
    pub refused: u64,
}

/// Whether there is more to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stepped {
    /// Nothing was found.
    Idle,
    /// Nothing was done, but there are frames that wait for their flow's rate, or for the system.
    Waits,
    /// Something was done.
    Worked,
}

struct State {
    flow: Flow,
    peers: Peers,
}

/// A frame that was read from the queue, and where its data lies in the scratch.
struct Read {
    chain: Chain,
    /// Which flow's, whom to, and the data; nothing where it was refused.
    of: Option<(usize, SocketAddrV4, Range<usize>)>,
}

/// A model NIC.
pub struct Nic<W> {
    iommu: Arc<Iommu>,
    receives: Queue,
    sends: Queue,
    /// Whether a queue is used.
    works: [bool; 2],
    flows: Vec<State>,
    region: Option<Region>,
    wire: W,
    counters: Counters,
    records: VecDeque<Record>,
    record_count: u64,
    scratch: Vec<u8>,
    read: Vec<Read>,
    ready: Vec<usize>,
    /// Which flow is next to have a datagram taken.
    turn: usize,
    /// Which frame was counted last that waited for its flow's rate.
    delayed: Option<u16>,
}

impl<W: Wire> Nic<W> {
    /// A device with these queues and flows.
    #[must_use]
    pub fn new(iommu: Arc<Iommu>, receives: Places, sends: Places, flows: Vec<Flow>, wire: W) -> Self {
        Self {
            iommu,
            receives: Queue::new(QueueId(0), Way::Receives, receives),
            sends: Queue::new(QueueId(1), Way::Sends, sends),
            works: [true; 2],
            flows: flows.into_iter().map(|flow| State { flow, peers: Peers::default() }).collect(),
            region: None,
            wire,
            counters: Counters::default(),
            records: VecDeque::new(),
            record_count: 0,
            scratch: Vec::new(),
            read: Vec::new(),
            ready: Vec::new(),
            turn: 0,
            delayed: None,
        }
    }

    /// Gives it memory that datagrams are written into.
    #[must_use]
    pub fn with_region(mut self, region: Region) -> Self {
        self.region = Some(region);
        self
    }

    /// What has become of datagrams.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// How often it was told to do what it does not.
    #[must_use]
    pub fn record_count(&self) -> u64 {
        self.record_count
    }

    /// Takes the records that were kept: the first [`RECORDS_MAX`] since this was called last.
    pub fn take_records(&mut self) -> Vec<Record> {
        self.records.drain(..).collect()
    }

    /// What is behind the device.
    pub fn wire(&mut self) -> &mut W {
        &mut self.wire
    }

    fn record(&mut self, record: Record) {
        self.record_count = self.record_count.saturating_add(1);
        if self.records.len() < RECORDS_MAX {
            self.records.push_back(record);
        }
    }

    /// Does a bounded amount of work: at most [`STEP_MAX`] frames, and as many datagrams. `notified` is what the queue to send
    /// was notified of since the last step: its next available index (`VIRTIO_F_NOTIFICATION_DATA`), which the device does not
    /// look up in memory. `now` never goes back.
    pub fn step(&mut self, notified: Option<u16>, now: Duration) -> Stepped {
        let (sent, mut received) = (self.send_only(notified, now), false);
        if self.works[0] {
            match self.receive() {
                Ok(any) => received = any,
                Err(fault) => {
                    self.works[0] = false;
                    self.record(Record::Fault(fault));
                }
            }
        }
        if received { Stepped::Worked } else { sent }
    }

    /// Sends as [`step`](Self::step) does, and receives nothing.
    pub fn send_only(&mut self, notified: Option<u16>, now: Duration) -> Stepped {
        if !self.works[1] {
            return Stepped::Idle;
        }
        let reached = notified.map_or(Ok(()), |end| self.sends.reach(end));
        reached.and_then(|()| self.send(now)).unwrap_or_else(|fault| {
            self.works[1] = false;
            self.record(Record::Fault(fault));
            Stepped::Idle
        })
    }

    /// Which flow a frame is of, whom it goes to, and where its data lies; `frame` is a range of the scratch.
    fn classify(&self, frame: Range<usize>) -> Result<(usize, SocketAddrV4, Range<usize>), Refusal> {
        let bytes = self.scratch.get(frame.clone()).unwrap_or_default();
        let (header, rest) = bytes.split_first_chunk::<NET_HEADER_BYTES>().ok_or(Malformed::Short)?;
        let header = NetHeader::decode(header);
        let completes =
            (header.checksum_start, header.checksum_offset) == (frame::UDP_START, frame::UDP_CHECKSUM);
        if header.segmentation != 0 || !(header.flags == 0 || header.flags == NEEDS_CHECKSUM && completes) {
            return Err(Refusal::Header(header));
        }
        let datagram = frame::parse(rest)?;
        let number = self
            .flows
            .iter()
            .position(|state| (state.flow.local, state.flow.link) == (datagram.from, datagram.from_link));
        let number = number.ok_or(Refusal::Source(datagram.from))?;
        let State { flow, peers } = &self.flows[number];
        let may = flow.remote.map_or_else(|| peers.knows(datagram.to), |remote| remote == datagram.to);
        if !may {
            return Err(Refusal::Destination(datagram.from, datagram.to));
        }
        // The sockets make the checksum themselves; what is to be completed has to be the pseudo header's.
        let udp_bytes = u16::try_from(datagram.data.len() + 8).unwrap_or(u16::MAX);
        let pseudo = frame::pseudo(*datagram.from.ip(), *datagram.to.ip(), udp_bytes);
        if header.flags == NEEDS_CHECKSUM && datagram.checksum != pseudo {
            return Err(Malformed::Checksum.into());
        }
        Ok((number, datagram.to, frame.start + HEADERS..frame.end))
    }

    /// Copies and checks what is to be sent, as far as rates allow.
    fn read_frames(&mut self, now: Duration) -> Result<(), Fault> {
        self.scratch.clear();
        self.read.clear();
        for ahead in 0..self.sends.waiting().min(STEP_MAX) {
            let chain = match self.sends.chain(&self.iommu, ahead) {
                Ok(chain) => chain,
                // What stands before it is sent.
                Err(_) if ahead > 0 => return Ok(()),
                Err(fault) => return Err(fault),
            };
            let begin = self.scratch.len();
            match self.sends.gather(&self.iommu, &chain, &mut self.scratch) {
                Err(_) if ahead > 0 => return Ok(()),
                gathered => gathered?,
            }
            let of = match self.classify(begin..self.scratch.len()) {
                Ok((number, to, data)) => {
                    let bucket = self.flows[number].flow.bucket.as_mut();
                    if bucket.is_some_and(|bucket| !bucket.take(data.len(), now)) {
                        let number = Some(self.sends.number(ahead));
                        if std::mem::replace(&mut self.delayed, number) != number {
                            self.counters.delayed += 1;
                        }
                        return Ok(());
                    }
                    Some((number, to, data))
                }
                Err(refusal) => {
                    self.record(Record::Refusal(refusal));
                    None
                }
            };
            self.read.push(Read { chain, of });
        }
        Ok(())
    }

    fn send(&mut self, now: Duration) -> Result<Stepped, Fault> {
        if self.sends.waiting() == 0 {
            return Ok(Stepped::Idle);
        }
        self.read_frames(now)?;
        let mut done = 0;
        while let Some(first) = self.read.get(done) {
            let Some((number, ..)) = first.of else {
                done += 1;
                continue;
            };
            // As many as are of one flow are sent at once.
            let run = self.read[done..].iter().map_while(|read| match &read.of {
                Some((other, to, data)) if *other == number => {
                    let data = self.scratch.get(data.clone()).unwrap_or_default();
                    Some(Outgoing { to: *to, data })
                }
                _ => None,
            });
            let run: Vec<_> = run.collect();
            let taken = self.wire.send(number, &run);
            let count = taken.count.min(run.len());
            self.counters.sent += count.saturating_sub(taken.lost) as u64;
            self.counters.lost += taken.lost as u64;
            done += count;
            if count < run.len() {
                break;
            }
        }
        for read in self.read.get(done..).unwrap_or_default() {
            // What was not sent is read again, and costs again.
            if let Some((number, _, data)) = &read.of
                && let Some(bucket) = &mut self.flows[*number].flow.bucket
            {
                bucket.give_back(data.len());
            }
        }
        for read in &self.read[..done] {
            self.sends.complete(&self.iommu, read.chain.head, 0)?;
        }
        if done > 0 {
            self.sends.publish(&self.iommu)?;
            return Ok(Stepped::Worked);
        }
        Ok(if self.sends.waiting() > 0 { Stepped::Waits } else { Stepped::Idle })
    }

    /// Takes what has come, into the buffers that there are; whether anything was. Flows that have something take turns, whatever
    /// becomes of it, and go on where the last step ended: a flood of one leaves the others their share.
    fn receive(&mut self) -> Result<bool, Fault> {
        if self.flows.is_empty() {
            return Ok(false);
        }
        self.receives.look(&self.iommu)?;
        let mut room = self.receives.waiting().min(STEP_MAX);
        if room == 0 && self.region.is_none() {
            // It waits in the sockets.
            return Ok(false);
        }
        self.ready.clear();
        self.wire.ready(self.flows.len(), &mut self.ready);
        let (turn, begun) = (self.turn, room);
        self.ready.sort_unstable_by_key(|number| (*number < turn, *number));
        let (mut at, mut taken) = (0, 0);
        while taken < STEP_MAX && !self.ready.is_empty() {
            at %= self.ready.len();
            let number = self.ready[at];
            if self.arrive(number, &mut room)? {
                (at, taken, self.turn) = (at + 1, taken + 1, number + 1);
            } else {
                self.ready.remove(at);
            }
        }
        if room < begun {
            self.receives.publish(&self.iommu)?;
        }
        Ok(taken > 0)
    }

    /// Takes a datagram of a flow, if there is one and a buffer where it needs one; whether there was.
    fn arrive(&mut self, number: usize, room: &mut u16) -> Result<bool, Fault> {
        let Some(State { flow, peers }) = self.flows.get_mut(number) else { return Ok(false) };
        if flow.arrives == Arrives::Queue && *room == 0 {
            return Ok(false);
        }
        // One byte more tells what is too long.
        self.scratch.resize(FRAME_BYTES_MAX + 1, 0);
        let into = self.scratch.get_mut(HEADERS..).unwrap_or_default();
        let Some(arrived) = self.wire.receive(number, into) else { return Ok(false) };
        let heard = match flow.remote {
            Some(remote) => arrived.from == remote,
            None => flow.peers.has(arrived.from),
        };
        if arrived.length > DATA_BYTES_MAX || !heard {
            self.counters.dropped += 1;
            return Ok(true);
        }
        if flow.remote.is_none() {
            peers.hear(arrived.from);
        }
        match (&flow.arrives, &mut self.region) {
            (Arrives::Queue, _) => {
                self.frame(number, arrived)?;
                *room -= 1;
            }
            (Arrives::Region(within), Some(region)) => {
                let datagram = self.scratch.get(HEADERS..HEADERS + arrived.length).unwrap_or_default();
                match region.write(&self.iommu, within, datagram)? {
                    true => self.counters.written += 1,
                    false => self.counters.refused += 1,
                }
            }
            (Arrives::Region(_) | Arrives::Nowhere, _) => self.counters.dropped += 1,
        }
        Ok(true)
    }

    /// Writes what has come, which lies in the scratch, into the next buffer to receive.
    fn frame(&mut self, number: usize, arrived: Arrived) -> Result<(), Fault> {
        let Some(State { flow, .. }) = self.flows.get(number) else { return Ok(()) };
        let bytes = u16::try_from(arrived.length).unwrap_or(u16::MAX);
        let header = NetHeader {
            flags: NEEDS_CHECKSUM,
            segmentation: 0,
            checksum_start: frame::UDP_START,
            checksum_offset: frame::UDP_CHECKSUM,
            buffers: 1,
        };
        let pseudo = frame::pseudo(*arrived.from.ip(), *flow.local.ip(), bytes.saturating_add(8));
        let headers =
            frame::headers(Links { from: HOP, to: flow.link }, arrived.from, flow.local, bytes, pseudo);
        self.scratch[..NET_HEADER_BYTES].copy_from_slice(&header.encode());
        self.scratch[NET_HEADER_BYTES..HEADERS].copy_from_slice(&headers);
        let whole = HEADERS + arrived.length;
        let chain = self.receives.chain(&self.iommu, 0)?;
        self.receives.scatter(&self.iommu, &chain, self.scratch.get(..whole).unwrap_or_default())?;
        self.receives.complete(&self.iommu, chain.head, u32::try_from(whole).unwrap_or(u32::MAX))?;
        self.counters.received += 1;
        Ok(())
    }
}
