//! The kinds of operations.

macro_rules! kinds {
    ($($kind:ident $weight:literal),* $(,)?) => {
        /// The kind of an operation.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(missing_docs)] // `maker` and `sharing` define what each does.
        pub enum Kind { $($kind),* }

        /// All kinds, with the weights that apply unless a setting has others.
        pub const KINDS: &[(Kind, u32)] = &[$((Kind::$kind, $weight)),*];
    };
}

kinds! {
    Open 6, Share 0, UseShared 0, Close 4, DropDevice 0,
    MakePool 4, DropPool 3, SetPool 2, Trim 2, Look 2,
    Alloc 30, Write 24, Read 16, Copy 5, WritePart 12, ReadPart 8, Free 18, Drop 5, FreeNow 2, FreeAddress 1, Stale 2,
    Give 0, Take 0,
    Record 6, Wait 10, RecordExternal 2, WaitExternal 3,
    SyncEvent 2, IsOver 2, SyncStream 3, IsIdle 1, SyncDevice 2,
    Hold 0, Owning 0, Panic 0, Fail 0, EndFailure 0, Grant 0,
    Spawn 0, Lend 0, Redeem 0, Work 0, Return 0, Ask 0, Borrow 0, Repay 0, Flood 0, Kill 0, HangUp 0,
    Capture 0, Build 0, Instantiate 0, Launch 0, Upload 0, Update 0, DropExec 0, TrimGraphs 0,
}
