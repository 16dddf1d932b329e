// SPDX-License-Identifier: Apache-2.0
#include "calibration/nnls.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <Eigen/Dense>

namespace draftboard::calibration {

namespace {

// Least squares over the columns in `passive` alone; the others get 0.
Eigen::VectorXd solve_passive(const Eigen::MatrixXd& a, const Eigen::VectorXd& b,
                              const std::vector<bool>& passive) {
    std::vector<Eigen::Index> columns;
    for (std::size_t j = 0; j < passive.size(); ++j) {
        if (passive[j]) columns.push_back(static_cast<Eigen::Index>(j));
    }
    Eigen::MatrixXd part(a.rows(), static_cast<Eigen::Index>(columns.size()));
    for (std::size_t j = 0; j < columns.size(); ++j) {
        part.col(static_cast<Eigen::Index>(j)) = a.col(columns[j]);
    }
    const Eigen::VectorXd solution = part.colPivHouseholderQr().solve(b);
    Eigen::VectorXd x = Eigen::VectorXd::Zero(a.cols());
    for (std::size_t j = 0; j < columns.size(); ++j) {
        x(columns[j]) = solution(static_cast<Eigen::Index>(j));
    }
    return x;
}

}  // namespace

model::Expected<std::vector<double>> solve_nnls(const std::vector<double>& a,
                                                const std::vector<double>& b,
                                                std::size_t columns) {
    const auto refuse = [](const char* why) {
        return model::fail(model::ErrorCode::invalid_input, why, "non-negative least squares");
    };
    if (columns == 0 || b.empty()) return refuse("there is nothing to solve");
    if (columns > kMaxNnlsColumns) return refuse("there are too many unknowns");
    if (a.size() != b.size() * columns) return refuse("the matrix and the right side don't agree in size");
    const auto finite = [](double value) { return std::isfinite(value); };
    if (!std::all_of(a.begin(), a.end(), finite) || !std::all_of(b.begin(), b.end(), finite)) {
        return refuse("an entry is not a finite number");
    }

    using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    const auto rows = static_cast<Eigen::Index>(b.size());
    const auto n = static_cast<Eigen::Index>(columns);
    Eigen::MatrixXd matrix = Eigen::Map<const RowMajor>(a.data(), rows, n);
    Eigen::VectorXd right = Eigen::Map<const Eigen::VectorXd>(b.data(), rows);

    // Columns in unit length: the tolerance below then means the same for all of them.
    Eigen::VectorXd scale(n);
    for (Eigen::Index j = 0; j < n; ++j) {
        const double norm = matrix.col(j).stableNorm();
        scale(j) = norm > 0 && std::isfinite(norm) ? norm : 1.0;
        matrix.col(j) /= scale(j);
    }
    // A tall problem is as good as its triangle: |Ax-b|^2 = |Rx-Q^T b|^2 + const.
    if (rows > 2 * n) {
        Eigen::HouseholderQR<Eigen::MatrixXd> qr(matrix);
        right.applyOnTheLeft(qr.householderQ().adjoint());
        right.conservativeResize(n);
        matrix = qr.matrixQR().topRows(n).triangularView<Eigen::Upper>().toDenseMatrix();
    }

    const double tolerance =
        1e-11 * std::max(right.stableNorm(), std::numeric_limits<double>::min());
    std::vector<bool> passive(columns, false);
    Eigen::VectorXd x = Eigen::VectorXd::Zero(n);
    // Each round lets one column in; 3n rounds are far beyond what Lawson and Hanson saw needed.
    for (std::size_t round = 0; round < 3 * columns; ++round) {
        const Eigen::VectorXd slope = matrix.transpose() * (right - matrix * x);
        Eigen::Index enter = -1;
        for (Eigen::Index j = 0; j < n; ++j) {
            if (passive[static_cast<std::size_t>(j)] || slope(j) <= tolerance) continue;
            if (enter < 0 || slope(j) > slope(enter)) enter = j;
        }
        if (enter < 0) break;
        passive[static_cast<std::size_t>(enter)] = true;
        Eigen::VectorXd candidate = solve_passive(matrix, right, passive);
        if (candidate(enter) <= 0) {  // only by rounding: the column adds nothing
            passive[static_cast<std::size_t>(enter)] = false;
            break;
        }
        // Walk from x towards the candidate until a column hits zero, drop it, and solve again.
        for (std::size_t inner = 0; inner <= columns; ++inner) {
            double step = 1.0;
            for (Eigen::Index j = 0; j < n; ++j) {
                if (passive[static_cast<std::size_t>(j)] && candidate(j) <= 0) {
                    step = std::min(step, x(j) / (x(j) - candidate(j)));
                }
            }
            if (step >= 1.0) break;
            x += step * (candidate - x);
            for (Eigen::Index j = 0; j < n; ++j) {
                if (passive[static_cast<std::size_t>(j)] && candidate(j) <= 0 && x(j) <= 1e-15) {
                    passive[static_cast<std::size_t>(j)] = false;
                    x(j) = 0;
                }
            }
            candidate = solve_passive(matrix, right, passive);
        }
        x = candidate.cwiseMax(0.0);
    }
    std::vector<double> solution(columns);
    for (Eigen::Index j = 0; j < n; ++j) solution[static_cast<std::size_t>(j)] = x(j) / scale(j);
    return solution;
}

}  // namespace draftboard::calibration
