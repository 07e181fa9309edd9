//! Fields of the kernel's messages by name, for those that carry messages and do not run them.
//!
//! A view is made of a whole message, its header included. Of a message that is too short there is none.

use crate::abi::{self, CopyFileRangeIn, EntryOut, InHeader, OutHeader, ReadIn, WriteIn, take};
use crate::decode::write_how;
use crate::{NodeId, WriteFlags};

/// The arguments behind the header of a request, and what follows them.
pub(crate) fn arguments<T: abi::Plain>(message: &[u8]) -> Option<(T, &[u8])> {
    take::<InHeader>(message).and_then(|(_, body)| take(body))
}

/// The arguments of READ, READDIR and READDIRPLUS.
#[derive(Debug, Clone, Copy)]
pub struct ReadView(ReadIn);

impl ReadView {
    /// Reads the arguments of a request; `None` if they are not all there.
    pub fn parse(message: &[u8]) -> Option<ReadView> {
        arguments(message).map(|(fixed, _)| ReadView(fixed))
    }

    /// Returns where reading begins.
    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    /// Returns how many bytes are asked for.
    pub fn size(&self) -> usize {
        self.0.size as usize
    }
}

/// The arguments of WRITE, and its data.
#[derive(Debug, Clone, Copy)]
pub struct WriteView<'a> {
    fixed: WriteIn,
    data: &'a [u8],
}

impl<'a> WriteView<'a> {
    /// Bytes of a write before its data: the header and the arguments.
    pub const HEAD_BYTES: usize = size_of::<InHeader>() + size_of::<WriteIn>();

    /// Reads the arguments of a write; `None` if they are not all there. The data may be elsewhere.
    pub fn parse(message: &'a [u8]) -> Option<WriteView<'a>> {
        arguments(message).map(|(fixed, data)| WriteView { fixed, data })
    }

    /// Returns where writing begins.
    pub fn offset(&self) -> u64 {
        self.fixed.offset
    }

    /// Returns all bytes behind the arguments.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Returns how the bytes come, and how their file is open.
    pub fn how(&self) -> WriteFlags {
        write_how(&self.fixed)
    }
}

/// The arguments of COPY_FILE_RANGE.
#[derive(Debug, Clone, Copy)]
pub struct CopyView(CopyFileRangeIn);

impl CopyView {
    /// Reads the arguments of a copy; `None` if they are not all there.
    pub fn parse(message: &[u8]) -> Option<CopyView> {
        arguments(message).map(|(fixed, _)| CopyView(fixed))
    }

    /// Returns the file that is copied into.
    pub fn target(&self) -> NodeId {
        self.0.nodeid_out
    }
}

/// The header of an answer or a notification.
#[derive(Debug, Clone, Copy)]
pub struct AnswerView(OutHeader);

impl AnswerView {
    /// Reads the header of an answer; `None` if it is not all there.
    pub fn parse(answer: &[u8]) -> Option<AnswerView> {
        take(answer).map(|(header, _)| AnswerView(header))
    }

    /// Cuts the first of several answers off; `None` if there is not a whole one. Returns its header, itself, and the rest.
    pub fn split_first(answers: &[u8]) -> Option<(AnswerView, &[u8], &[u8])> {
        let (answer, rest) = answers.split_at_checked(AnswerView::parse(answers)?.0.len as usize)?;
        Some((AnswerView::parse(answer)?, answer, rest))
    }

    /// Returns the number of the request that is answered.
    pub fn unique(&self) -> u64 {
        self.0.unique
    }

    /// Tells whether it is a notification, which answers no request.
    pub fn is_notification(&self) -> bool {
        self.0.unique == 0
    }

    /// Tells whether the request was done. A notification has its kind instead of an error.
    pub fn is_success(&self) -> bool {
        self.0.error == 0
    }

    /// Tells whether the request failed with this error.
    pub fn failed_with(&self, errno: i32) -> bool {
        self.0.error == -errno
    }
}

/// Returns whether an answer, or an event that is one, says that the request was done.
pub fn is_success(answer: &[u8]) -> bool {
    AnswerView::parse(answer).is_some_and(|answer| answer.is_success())
}

/// The entry that an answer gave.
#[derive(Debug, Clone, Copy)]
pub struct EntryView(EntryOut);

impl EntryView {
    /// Reads the entry behind the header of an answer; `None` if it is not all there.
    pub fn parse(answer: &[u8]) -> Option<EntryView> {
        let (_, body) = take::<OutHeader>(answer)?;
        take(body).map(|(entry, _)| EntryView(entry))
    }

    /// Tells whether the entry is a directory.
    pub fn is_directory(&self) -> bool {
        self.0.attr.mode & libc::S_IFMT == libc::S_IFDIR
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Errno;
    use crate::abi::{Attr, bytes_of};

    /// The bytes of a header of this layout, a structure and what follows it.
    fn message<H: abi::Plain, T: abi::Plain>(header: &H, body: &T, rest: &[u8]) -> Vec<u8> {
        [bytes_of(header), bytes_of(body), rest].concat()
    }

    fn request<T: abi::Plain>(body: &T) -> Vec<u8> {
        message(&InHeader { unique: u64::MAX, ..InHeader::default() }, body, &[])
    }

    /// Whether there is a view of the whole message and of no shorter one.
    fn needs_all<T>(whole: &[u8], parse: impl Fn(&[u8]) -> Option<T>) -> bool {
        parse(whole).is_some() && (0..whole.len()).all(|len| parse(&whole[..len]).is_none())
    }

    #[test]
    fn a_read_says_where_and_how_much() {
        let whole = request(&ReadIn { fh: 1, offset: 2, size: 3, read_flags: 4, ..ReadIn::default() });
        let read = ReadView::parse(&whole).unwrap();
        assert_eq!((read.offset(), read.size()), (2, 3));
        assert!(needs_all(&whole, ReadView::parse));
    }

    #[test]
    fn a_write_has_its_place_its_data_and_its_flags() {
        let flags = (libc::O_WRONLY | libc::O_APPEND).cast_unsigned();
        let fixed = WriteIn { fh: 1, offset: 2, size: 4, write_flags: abi::WRITE_CACHE, flags, ..WriteIn::default() };
        let head = request(&fixed);
        assert_eq!(head.len(), WriteView::HEAD_BYTES);
        assert!(needs_all(&head, |message| WriteView::parse(message).map(|_| ())));
        assert!(WriteView::parse(&head).unwrap().data().is_empty());
        let whole = [&head[..], b"data"].concat();
        let write = WriteView::parse(&whole).unwrap();
        assert_eq!((write.offset(), write.data()), (2, &b"data"[..]));
        assert_eq!(write.how(), WriteFlags { cached: true, append: true, ..WriteFlags::default() });
        let flags = libc::O_DSYNC.cast_unsigned();
        let durable = request(&WriteIn { flags, write_flags: abi::WRITE_KILL_SUIDGID, ..WriteIn::default() });
        let how = WriteFlags { sync: true, kill_suidgid: true, ..WriteFlags::default() };
        assert_eq!(WriteView::parse(&durable).unwrap().how(), how);
    }

    #[test]
    fn a_copy_says_into_which_file() {
        let whole = request(&CopyFileRangeIn { fh_in: 1, off_in: 2, nodeid_out: 3, fh_out: 4, ..Default::default() });
        assert_eq!(CopyView::parse(&whole).unwrap().target(), 3);
        assert!(needs_all(&whole, CopyView::parse));
    }

    #[test]
    fn the_header_of_an_answer_says_whose_it_is_and_how_it_went() {
        let header = |error, unique| bytes_of(&OutHeader { len: 16, error, unique }).to_vec();
        let view = |error, unique| AnswerView::parse(&header(error, unique)).unwrap();
        let (done, failed, told) = (view(0, 8), view(-Errno::EACCES.0, 8), view(abi::notify_code::INVAL_INODE, 0));
        assert!(done.is_success() && !failed.is_success() && !told.is_success());
        assert!(
            failed.failed_with(libc::EACCES) && !failed.failed_with(libc::EAGAIN) && !done.failed_with(libc::EACCES)
        );
        assert!(told.is_notification() && !done.is_notification());
        assert_eq!((done.unique(), told.unique()), (8, 0));
        assert!(needs_all(&header(0, 8), AnswerView::parse));
        assert!(is_success(&header(0, 8)) && !is_success(&header(-libc::EACCES, 8)) && !is_success(&[0; 15]));
    }

    #[test]
    fn answers_in_a_row_are_cut_apart_and_what_is_not_whole_is_none() {
        let answer = |len, unique, body: &[u8]| [bytes_of(&OutHeader { len, error: 0, unique }), body].concat();
        let both = [answer(20, 2, b"body"), answer(16, 4, &[])].concat();
        let (first, bytes, rest) = AnswerView::split_first(&both).unwrap();
        assert_eq!((first.unique(), bytes, rest.len()), (2, &both[..20], 16));
        let (second, bytes, rest) = AnswerView::split_first(rest).unwrap();
        assert_eq!((second.unique(), bytes, rest.len()), (4, &both[20..], 0));
        assert!((0..20).all(|len| AnswerView::split_first(&both[..len]).is_none()));
        for len in [0, 15, 37, u32::MAX] {
            assert!(AnswerView::split_first(&answer(len, 2, &[0; 20])).is_none(), "{len}");
        }
    }

    #[test]
    fn an_entry_is_a_directory_by_its_mode() {
        let answer = |mode| {
            let entry = EntryOut { nodeid: 7, attr: Attr { mode, ..Attr::default() }, ..EntryOut::default() };
            message(&OutHeader::default(), &entry, &[])
        };
        assert!(EntryView::parse(&answer(libc::S_IFDIR | 0o755)).unwrap().is_directory());
        assert!(!EntryView::parse(&answer(libc::S_IFREG | 0o755)).unwrap().is_directory());
        assert!(needs_all(&answer(libc::S_IFDIR), EntryView::parse));
    }
}
