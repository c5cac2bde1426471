//! The destination of a round: staged beside the volume, and then the volume's content at once.
//!
//! The mark says of which moment the staged content below the store's progress is, at least. So
//! when an import goes on from a newer point, the older mark stays until the first part of the
//! new pass is staged, since until then the store's progress is that of the older pass; content
//! that is newer than its mark is only fetched once more.
use block::{ByteLen, ByteOffset, Position, Seq};

use crate::constants::VOLUME_MAX;
use crate::history::History;
use crate::message::{AskId, Piece};
use crate::replica::{Following, LinkId, Output, Replica, Standing};
use crate::state::{
    ImportMark, ReplicaState, SNAPSHOTS_FIT, SharedState, SnapshotEntry, SnapshotSpec,
};
use crate::store::{Content, StoreError, StoreOp};
use crate::words::SnapshotUid;

use super::apply::TOO_MANY_SNAPSHOTS;
use super::asked::Purpose;
use super::fetch::{PART_MAX, RANGES_MAX};
use super::internal::Kind;
use super::plan::{Begun, Edit, Plan, Step, Then};

/// An import that this target asked for.
#[derive(Debug)]
pub struct Import {
    pub mark: ImportMark,
    /// Of this pass.
    pub progress: u64,
    /// What was staged before it began.
    pub kept: Option<(ImportMark, ByteOffset)>,
    /// It had left the stream before; without a commit it is still out of it.
    left: bool,
    /// A part could not be staged: what was sent behind it must not be, or progress would say that
    /// it is there.
    pub broken: bool,
}

fn refused(reason: &str) -> Begun {
    Begun::Refused(StoreError::Refused { reason: reason.to_owned() })
}

impl Replica {
    pub(super) fn import_asked(&mut self, link: LinkId, mark: ImportMark, size: ByteLen) {
        let Following::Bound { standing, .. } = &mut self.following else { return };
        let left = match standing {
            Standing::Live => false,
            Standing::Left => true,
            Standing::Importing(import) => import.left,
        };
        *standing =
            Standing::Importing(Import { mark, progress: 0, kept: None, left, broken: false });
        // The import brings them.
        self.forget_what_waits();
        let steps = [Step::MakePending, Step::BeginImport { mark, size }];
        self.plans.push_back(Plan::asked(link, steps, Then::ImportBegun));
    }

    pub(super) fn begin_import(&mut self, mark: ImportMark, size: ByteLen) -> Begun {
        if mark.since > self.books.held.seq {
            return refused("what it has ends before the changes begin");
        }
        if size.0 > VOLUME_MAX {
            return refused("the source is larger than a volume can be");
        }
        let kept = self.state.import.zip(self.staged);
        let useful = kept.filter(|(old, _)| old.since == mark.since);
        if let Some(import) = self.import() {
            import.kept = useful.map(|(old, progress)| (old, ByteOffset(progress)));
        }
        match kept {
            Some((old, progress)) if old == mark => {
                if let Some(import) = self.import() {
                    import.progress = progress;
                }
                Begun::Nothing
            }
            Some((old, _)) if old.since == mark.since => {
                let newer = mark.source > old.source && mark.source.seq >= old.source.seq;
                match newer && size <= self.shape.size {
                    true => Begun::Nothing,
                    // Neither can what is staged be taken back to an older moment, nor can it grow.
                    // The target counts on it, so it has to hear that it is gone.
                    false => Begun::Steps(vec![Step::DropImport, Step::HangUp]),
                }
            }
            _ => {
                let mut steps = self.dropping();
                steps.push(Step::Edit(Edit::Import(Some(mark))));
                if size > self.shape.size {
                    steps.push(Step::Grow(size));
                }
                let spec = Kind::Base.spec(self.books.held);
                let base = spec.uid;
                steps.push(Step::Snapshot { spec, internal: true });
                steps.push(Step::Stage(base));
                Begun::Steps(steps)
            }
        }
    }

    pub(super) fn own_changes(
        &mut self,
        link: LinkId,
        id: AskId,
        since: Seq,
        from: ByteOffset,
        out: &mut Vec<Output>,
    ) {
        let base = self.internal.iter().find(|entry| Kind::Base.has(entry)).map(|entry| entry.uid);
        let Some(snapshot) = base.filter(|_| self.staged.is_some()) else {
            return self.import_failed(link, StoreError::UnknownSnapshot, out);
        };
        let op = StoreOp::Changed { snapshot, since, from, to: None, max: RANGES_MAX };
        self.ask(Purpose::OwnChanges { link, id }, op, out);
    }

    pub(super) fn parts_arrived(&mut self, link: LinkId, pieces: Vec<Piece>, to: ByteOffset) {
        let progress = to.0;
        // Bound to the round that they are of: another one may begin before their turn comes.
        let mark = self.import().map(|import| import.mark);
        let steps = [Step::Parts { pieces, progress, mark }];
        self.plans.push_back(Plan::asked(link, steps, Then::Imported { progress, mark }));
    }

    /// All but the last part keep the store's progress: it must not say more than is staged if one
    /// of them fails.
    pub(super) fn begin_parts(
        &mut self,
        pieces: &[Piece],
        progress: u64,
        of: Option<ImportMark>,
    ) -> Begun {
        let Some(stored) = self.staged else { return refused("no import was begun") };
        let mark = match self.import() {
            Some(import) if !import.broken && of == Some(import.mark) => import.mark,
            Some(_) => return refused("it is of another round, or an earlier part failed"),
            None => return refused("no import was begun"),
        };
        if pieces.iter().any(|piece| piece.offset.end(piece.content.len()).is_none()) {
            return refused("a part lies beyond everything that has an offset");
        }
        let mut ops: Vec<StoreOp> = pieces.iter().flat_map(|piece| split(piece, stored)).collect();
        let Some(mut last) = ops.pop() else { return Begun::Nothing };
        if let StoreOp::StageData { progress: told, .. } = &mut last {
            *told = progress;
        }
        let mut steps = Vec::new();
        if !ops.is_empty() {
            steps.push(Step::Data { ops, progress: stored });
        }
        steps.push(Step::Data { ops: vec![last], progress });
        if self.state.import != Some(mark) {
            steps.push(Step::Edit(Edit::Import(Some(mark))));
        }
        Begun::Steps(steps)
    }

    pub(super) fn commit_asked(
        &mut self,
        link: LinkId,
        shared: Box<SharedState>,
        snapshot: Option<SnapshotSpec>,
        snapshots: Vec<SnapshotEntry>,
        out: &mut Vec<Output>,
    ) {
        let Some(import) = self.import().filter(|import| !import.broken) else {
            let reason = "no import was begun, or a part of it failed".to_owned();
            return self.import_failed(link, StoreError::Refused { reason }, out);
        };
        let at = import.mark.source;
        if let Err(why) = shared.is_plausible_at(at) {
            let reason = format!("what is to be adopted cannot be: {why}");
            return self.import_failed(link, StoreError::Refused { reason }, out);
        }
        let history = History { reigns: shared.reigns.clone(), end: at };
        let steps = [
            Step::Forget { history, listed: snapshots },
            Step::Adopt { at, shared, pending: snapshot },
            Step::MakePending,
            Step::DropTail,
            Step::Flush,
        ];
        self.plans.push_back(Plan::asked(link, steps, Then::Committed));
    }

    pub(super) fn begin_adopt(
        &mut self,
        position: Position,
        shared: &SharedState,
        pending: Option<&SnapshotSpec>,
    ) -> Begun {
        if self.staged.is_none() {
            return refused("no import was begun");
        }
        let state = self.state_adopted(shared, pending).encode();
        Begun::Ops(vec![StoreOp::Adopt { position, state }])
    }

    /// The own part stays; what is shared is that of the source.
    fn state_adopted(&self, shared: &SharedState, pending: Option<&SnapshotSpec>) -> ReplicaState {
        let shared = match self.mechanisms.whole_rounds() {
            true => shared.clone(),
            false => SharedState { reigns: shared.reigns.clone(), ..self.state.shared.clone() },
        };
        ReplicaState {
            import: None,
            pending: pending.cloned(),
            membership_seen: self.state.membership_seen.max(shared.membership.version),
            shared,
            ..self.state.clone()
        }
    }

    pub(super) fn adopted(
        &mut self,
        at: Position,
        shared: &SharedState,
        pending: Option<&SnapshotSpec>,
    ) {
        self.state = self.state_adopted(shared, pending);
        self.staged = None;
        self.apply.jump(at);
        self.books.jump(at);
        self.credit.restart(at.seq);
    }

    /// Snapshots that are in the history which is about to be adopted, but which the source does
    /// not have: it deletes only what is settled, so nobody will ever ask for them again.
    pub(super) fn begin_forget(&mut self, history: &History, listed: &[SnapshotEntry]) -> Begun {
        let same = |entry: &SnapshotEntry, other: &SnapshotEntry| {
            (other.uid, other.position) == (entry.uid, entry.position)
        };
        let gone = self.snapshots.iter().filter(|entry| {
            history.may_contain(entry.position) && !listed.iter().any(|it| same(entry, it))
        });
        Begun::Steps(gone.map(|entry| Step::Delete(entry.uid)).collect())
    }

    /// Users' snapshots that are not in the own history: of a tail that was undone. Known from
    /// what is kept, so a crash between adopting and deleting loses nothing. Internal ones are of
    /// the content of before.
    pub(super) fn dropping_tail(&mut self) -> Vec<Step> {
        self.sources.clear();
        let tail = self.tail_snapshots();
        let internal = self.internal.iter().map(|entry| entry.uid);
        tail.into_iter().chain(internal).map(Step::Delete).collect()
    }

    pub(super) fn tail_snapshots(&self) -> Vec<SnapshotUid> {
        let reigns = self.state.shared.reigns.clone();
        let history = History { reigns, end: self.books.held };
        let tail = self.snapshots.iter().filter(|entry| !history.may_contain(entry.position));
        tail.map(|entry| entry.uid).collect()
    }

    pub(super) fn begin_pending(&mut self) -> Begun {
        let Some(spec) = self.state.pending.clone() else { return Begun::Nothing };
        let there = self.snapshots.iter().find(|entry| entry.uid == spec.uid);
        if there.is_none() && self.snapshots.len() >= SNAPSHOTS_FIT {
            return refused(TOO_MANY_SNAPSHOTS);
        }
        let made = Step::Edit(Edit::PendingMade);
        Begun::Steps(match there {
            Some(entry) if entry.position == self.books.held => vec![made],
            // Of a tail that was undone: the same snapshot, taken elsewhere.
            Some(entry) => {
                vec![Step::Delete(entry.uid), Step::Snapshot { spec, internal: false }, made]
            }
            None => vec![Step::Snapshot { spec, internal: false }, made],
        })
    }

    pub(super) fn abandon_asked(&mut self) {
        if let Following::Bound { standing, .. } = &mut self.following
            && let Standing::Importing(import) = standing
        {
            *standing = match import.left {
                true => Standing::Left,
                false => Standing::Live,
            };
        }
        self.drop_import();
    }

    pub(super) fn drop_import(&mut self) {
        self.plans.push_back(Plan::own([Step::DropImport], Then::Dropped));
    }

    pub(super) fn begin_drop(&mut self) -> Begun {
        let mut steps = self.dropping();
        if self.state.import.is_some() {
            steps.push(Step::Edit(Edit::Import(None)));
        }
        Begun::Steps(steps)
    }

    /// The mark goes last, or is replaced: without content it means nothing, while content without
    /// it would be of an unknown moment.
    fn dropping(&self) -> Vec<Step> {
        let abandon = self.staged.map(|_| Step::Abandon);
        let bases = self.internal.iter().filter(|entry| Kind::Base.has(entry));
        abandon.into_iter().chain(bases.map(|entry| Step::Delete(entry.uid))).collect()
    }
}

/// A piece as the store takes it. Zeros have no bound.
fn split(piece: &Piece, progress: u64) -> Vec<StoreOp> {
    let changed = piece.changed;
    match &piece.content {
        Content::Zeros(len) => {
            let (offset, content) = (piece.offset, Content::Zeros(*len));
            vec![StoreOp::StageData { changed, offset, content, progress }]
        }
        Content::Bytes(data) => {
            let part = usize::try_from(PART_MAX).expect("a part fits memory");
            let starts = (0..data.len()).step_by(part);
            let ops = starts.map(|start| {
                let bytes = data.slice(start..data.len().min(start + part));
                let offset = ByteOffset(piece.offset.0 + start as u64);
                let content = Content::Bytes(bytes);
                StoreOp::StageData { changed, offset, content, progress }
            });
            ops.collect()
        }
    }
}
