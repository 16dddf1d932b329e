// SPDX-License-Identifier: Apache-2.0
#pragma once
// Several processes that share one sweep: who am I, how many are we, and messages to the first of us. A program alone is a gang
// of one. Under mpirun the module mpi_gang.cpp is loaded; nothing else of Draftboard knows MPI, and a program that was not
// started by it neither loads nor needs it. All calls come from one thread.

#include <memory>
#include <optional>
#include <string>

#include "model/error.h"

namespace draftboard::planning {

class Gang {
 public:
    virtual ~Gang() = default;
    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;
    /// The first's text, to all.
    virtual void broadcast(std::string& text) = 0;
    /// True on all if it is true on each.
    [[nodiscard]] virtual bool all_agree(bool mine) = 0;
    /// To the first, which receives the messages of one sender in their order.
    virtual void send(const std::string& text) = 0;
    /// On the first: a message that has arrived.
    [[nodiscard]] virtual std::optional<std::string> receive() = 0;
    /// Ends all processes at once.
    [[noreturn]] virtual void abort(int exit_code) = 0;
    /// Processes of the gang on this machine.
    [[nodiscard]] virtual int size_here() const = 0;
};

/// A gang of one, or of those that mpirun started. Error: started by it, and the module is not there or does not load.
[[nodiscard]] model::Expected<std::unique_ptr<Gang>> join_gang();

}  // namespace draftboard::planning
