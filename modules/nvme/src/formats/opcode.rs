//! Opcodes, and what dword 10 of identify and of the features names.

/// Commands of the admin queue (base specification, figure "Opcodes for Admin Commands").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum AdminOpcode {
    /// Ends a submission queue.
    DeleteSubmissionQueue = 0x00,
    /// Makes a submission queue.
    CreateSubmissionQueue = 0x01,
    /// Reads a log page.
    GetLogPage = 0x02,
    /// Ends a completion queue.
    DeleteCompletionQueue = 0x04,
    /// Makes a completion queue.
    CreateCompletionQueue = 0x05,
    /// Reads a data structure about the controller or a namespace.
    Identify = 0x06,
    /// Asks to end one command.
    Abort = 0x08,
    /// Sets a feature.
    SetFeatures = 0x09,
    /// Reads a feature.
    GetFeatures = 0x0a,
    /// Completes when there is an event to tell.
    AsyncEventRequest = 0x0c,
}

impl AdminOpcode {
    /// The command with this number, where the model has it.
    #[must_use]
    pub fn decode(opcode: u8) -> Option<Self> {
        Some(match opcode {
            0x00 => Self::DeleteSubmissionQueue,
            0x01 => Self::CreateSubmissionQueue,
            0x02 => Self::GetLogPage,
            0x04 => Self::DeleteCompletionQueue,
            0x05 => Self::CreateCompletionQueue,
            0x06 => Self::Identify,
            0x08 => Self::Abort,
            0x09 => Self::SetFeatures,
            0x0a => Self::GetFeatures,
            0x0c => Self::AsyncEventRequest,
            _ => return None,
        })
    }
}

/// Commands of I/O queues (NVM command set specification, figure "Opcodes for NVM Commands").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum IoOpcode {
    /// Makes what was written before durable.
    Flush = 0x00,
    /// Writes blocks.
    Write = 0x01,
    /// Reads blocks.
    Read = 0x02,
    /// Writes zeroes without a transfer.
    WriteZeroes = 0x08,
    /// Tells how ranges will be used. The model refuses it.
    DatasetManagement = 0x09,
}

impl IoOpcode {
    /// The command with this number, where the model knows it.
    #[must_use]
    pub fn decode(opcode: u8) -> Option<Self> {
        Some(match opcode {
            0x00 => Self::Flush,
            0x01 => Self::Write,
            0x02 => Self::Read,
            0x08 => Self::WriteZeroes,
            0x09 => Self::DatasetManagement,
            _ => return None,
        })
    }
}

/// Which structure identify asks for (base specification, figure "Identify - CNS Values").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Cns {
    /// One namespace.
    Namespace = 0x00,
    /// The controller.
    Controller = 0x01,
    /// The numbers of the active namespaces.
    ActiveNamespaces = 0x02,
    /// Names of a namespace.
    NamespaceDescriptors = 0x03,
    /// The controller, as the NVM command set adds to it.
    CommandSetController = 0x06,
}

impl Cns {
    /// The structure with this number, where the model has it.
    #[must_use]
    pub fn decode(cns: u8) -> Option<Self> {
        Some(match cns {
            0x00 => Self::Namespace,
            0x01 => Self::Controller,
            0x02 => Self::ActiveNamespaces,
            0x03 => Self::NamespaceDescriptors,
            0x06 => Self::CommandSetController,
            _ => return None,
        })
    }
}

/// Which feature is read or set (base specification, figure "Set Features - Feature Identifiers").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Feature {
    /// Whether writes may wait in a volatile cache.
    VolatileWriteCache = 0x06,
    /// How many I/O queues there may be.
    NumberOfQueues = 0x07,
    /// Which events are told.
    AsyncEventConfiguration = 0x0b,
}

impl Feature {
    /// The feature with this number, where the model has it.
    #[must_use]
    pub fn decode(feature: u8) -> Option<Self> {
        Some(match feature {
            0x06 => Self::VolatileWriteCache,
            0x07 => Self::NumberOfQueues,
            0x0b => Self::AsyncEventConfiguration,
            _ => return None,
        })
    }
}
