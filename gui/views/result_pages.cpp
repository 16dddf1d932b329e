// SPDX-License-Identifier: Apache-2.0
#include "gui/views/result_pages.h"

#include <QComboBox>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QInputDialog>
#include <QLabel>
#include <QLineEdit>
#include <QPainter>
#include <QPlainTextEdit>
#include <QProgressBar>
#include <QPushButton>
#include <QSortFilterProxyModel>
#include <QSplitter>
#include <QTabWidget>
#include <QTableView>
#include <QVBoxLayout>
#include <algorithm>

#include "gui/core/waterfall.h"
#include "gui/models/tables.h"
#include "gui/models/text.h"
#include "gui/views/theme.h"

namespace draftboard::gui {

namespace {
constexpr int kRestMs = 150;  // a hand that still turns starts no ranking
}  // namespace

LeversPage::LeversPage(Session& session, QWidget* parent) : Page(session, "levers", "Levers", parent) {
    auto* all = new QVBoxLayout(this);
    all->setContentsMargins(8, 6, 8, 0);
    auto* row = new QHBoxLayout;
    text_ = new QLabel(this);
    text_->setObjectName("levers.text");
    text_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
    progress_ = new QProgressBar(this);
    progress_->setMaximumWidth(140);
    progress_->setTextVisible(false);
    progress_->hide();
    adopt_ = new QPushButton("Turn it on", this);
    adopt_->setObjectName("levers.adopt");
    adopt_->setToolTip("Makes the chosen change in the shown variant");
    auto* kinds = new QComboBox(this);
    kinds->setObjectName("levers.kind");
    kinds->setAccessibleName("Kind of change");
    for (const char* kind : {"all kinds", "setting", "hardware", "load", "uncertainty"}) kinds->addItem(kind);
    row->addWidget(text_, 1);
    row->addWidget(progress_);
    row->addWidget(kinds);
    row->addWidget(adopt_);
    all->addLayout(row);
    view_ = make_table_view(model_, "levers.table", this);
    connect(kinds, &QComboBox::currentIndexChanged, this, [this, kinds](int index) {
        auto* proxy = qobject_cast<QSortFilterProxyModel*>(view_->model());
        proxy->setFilterKeyColumn(1);
        proxy->setFilterFixedString(index == 0 ? QString() : kinds->currentText());
    });
    view_->setSelectionMode(QAbstractItemView::SingleSelection);
    all->addWidget(view_, 1);
    soon_.setSingleShot(true);
    soon_.setInterval(kRestMs);
    connect(&soon_, &QTimer::timeout, this, [this] { start(); });
    connect(adopt_, &QPushButton::clicked, this, [this] { adopt(); });
    connect(view_, &QTableView::activated, this, [this] { adopt(); });
    connect(&task_, &BackgroundTask::progressed, this,
            [this](double share, const QString&) { progress_->setValue(static_cast<int>(100 * share)); });
    connect(&task_, &BackgroundTask::finished, progress_, [this] { progress_->hide(); });
}

QString LeversPage::markdown() const { return base_ ? qs(levers_markdown(*base_, results_)) : QString(); }

void LeversPage::refresh() {
    const AnswerPointer answer = session_.answer();
    if (!answer || session_.stale() || session_.error()) return;
    if (base_ && base_->variant.edits == answer->variant.edits && base_->variant.base == answer->variant.base) return;
    soon_.start();
}

void LeversPage::start() {
    const AnswerPointer answer = session_.answer();
    if (!answer || session_.stale() || session_.error()) return;
    progress_->setValue(0);
    progress_->show();
    text_->setText("Predicting each change alone");
    task_.start([this, answer, knobs = session_.knobs(), data = session_.data_directory()](
                    const std::stop_token& stop, const BackgroundTask::Progress& progress) -> std::function<void()> {
        auto results = run_levers(*answer, levers_of(*answer, knobs), data, stop, [&](std::size_t done, std::size_t of) {
            progress(static_cast<double>(done) / static_cast<double>(of), {});
        });
        return [this, answer, results = std::move(results)] {
            base_ = answer;
            results_ = results;
            model_.set(levers_table(results_));
            view_->setColumnWidth(3, 220);
            text_->setText("Each row is one change alone against " + fixed(answer->prediction.tokens_per_second.value, 1) +
                           " tok/s; largest effect first.");
        };
    });
}

void LeversPage::adopt() {
    const QModelIndex current = view_->currentIndex();
    if (!current.isValid()) return;
    const auto* proxy = qobject_cast<QSortFilterProxyModel*>(view_->model());
    const auto row = static_cast<std::size_t>(proxy->mapToSource(current).row());
    if (row >= results_.size() || !results_[row].error.empty()) return;
    session_.edit(qs(results_[row].lever.name), results_[row].lever.edits);
}

StackedBars::StackedBars(Session& session, QWidget* parent) : QWidget(parent), session_(session) {
    setObjectName("variants.bars");
    setAccessibleName("Cycles of all variants");
}

QSize StackedBars::minimumSizeHint() const {
    const int count = static_cast<int>(session_.project().variants.size());
    return {400, 30 + count * (fontMetrics().height() + 14) + 2 * fontMetrics().height()};
}

void StackedBars::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    const Theme& t = theme();
    painter.fillRect(rect(), t.base);
    const auto& variants = session_.project().variants;
    double most = 0;
    int label = 0;
    std::vector<AnswerPointer> answers;
    for (const Variant& variant : variants) {
        answers.push_back(session_.compared(variant).answer);
        label = std::max(label, fontMetrics().horizontalAdvance(qs(variant.name)));
        if (answers.back())
            most = std::max(most, answers.back()->prediction.cycle_ms / answers.back()->prediction.acceptance_length.value);
    }
    if (most <= 0) return;
    label = std::min(label, width() / 3);
    painter.setPen(t.muted);
    painter.drawText(QRectF(8, 4, width() - 16, fontMetrics().height()), Qt::AlignLeft,
                     "Milliseconds a token, by term (cycle / acceptance length): shorter is faster");
    const double value_width = fontMetrics().horizontalAdvance("00.000 ms") + 10;
    const double left = label + 20;
    const double scale = (width() - left - value_width - 10) / most;
    const double high = fontMetrics().height() + 14;
    const double top = fontMetrics().height() + 12;
    std::vector<sim::TermKind> used;
    for (std::size_t i = 0; i < variants.size(); ++i) {
        const double y = top + static_cast<double>(i) * high;
        QFont bold = font();
        bold.setBold(static_cast<int>(i) == session_.project().current);
        painter.setFont(bold);
        painter.setPen(t.text);
        painter.drawText(QRectF(8, y, label + 8, high), Qt::AlignVCenter | Qt::AlignLeft,
                         QFontMetrics(bold).elidedText(qs(variants[i].name), Qt::ElideRight, label + 6));
        painter.setFont(font());
        if (!answers[i]) continue;
        const sim::Prediction& p = answers[i]->prediction;
        double x = left;
        for (const WaterfallBar& bar : build_waterfall(p, nullptr).bars) {
            const double wide = (bar.to_ms - bar.from_ms) / p.acceptance_length.value * scale;
            const QColor colour = bar.host ? t.muted : t.of(bar.kind);
            painter.fillRect(QRectF(x, y + 4, wide, high - 8),
                             !bar.host && bar.kind == sim::TermKind::wait ? t.hatch(colour) : QBrush(colour));
            painter.setPen(QPen(t.base, 0.7));
            painter.drawLine(QPointF(x + wide, y + 4), QPointF(x + wide, y + high - 4));
            x += wide;
            if (!bar.host && std::find(used.begin(), used.end(), bar.kind) == used.end()) used.push_back(bar.kind);
        }
        painter.setPen(t.text);
        painter.drawText(QRectF(x + 6, y, value_width, high), Qt::AlignVCenter | Qt::AlignLeft,
                         fixed(p.cycle_ms / p.acceptance_length.value, 3) + " ms");
    }
    // Legend.
    double x = 8;
    const double y = top + static_cast<double>(variants.size()) * high + 4;
    for (const sim::TermKind kind : used) {
        const QString name = qs(to_name(kind));
        const double wide = 16 + fontMetrics().horizontalAdvance(name) + 14;
        if (x + wide > width()) break;
        painter.fillRect(QRectF(x, y + 2, 11, 11), kind == sim::TermKind::wait ? t.hatch(t.of(kind)) : QBrush(t.of(kind)));
        painter.setPen(t.muted);
        painter.drawText(QRectF(x + 16, y - 2, wide, fontMetrics().height() + 4), Qt::AlignVCenter | Qt::AlignLeft, name);
        x += wide;
    }
}

VariantsPage::VariantsPage(Session& session, QWidget* parent) : Page(session, "variants", "Scenarios", parent) {
    auto* all = new QVBoxLayout(this);
    all->setContentsMargins(8, 6, 8, 0);
    auto* row = new QHBoxLayout;
    const auto button = [&](const QString& text, const QString& name, const QString& tip, auto action) {
        auto* out = new QPushButton(text, this);
        out->setObjectName("variants." + name);
        out->setToolTip(tip);
        connect(out, &QPushButton::clicked, this, action);
        row->addWidget(out);
    };
    button("Show", "show", "Makes the chosen variant the one that is turned", [this] { session_.show_variant(chosen()); });
    button("Duplicate", "duplicate", "A copy of the shown variant", [this] { session_.duplicate_variant(); });
    button("Rename", "rename", "", [this] { rename(); });
    button("Remove", "remove", "", [this] { remove(); });
    button("Pin as baseline", "pin", "All answers are then shown against it",
           [this] { session_.pin_variant(chosen() == session_.project().baseline ? -1 : chosen()); });
    row->addStretch(1);
    all->addLayout(row);
    auto* split = new QSplitter(Qt::Vertical, this);
    view_ = make_table_view(model_, "variants.table", split);
    view_->setSelectionMode(QAbstractItemView::SingleSelection);
    split->addWidget(view_);
    bars_ = new StackedBars(session_, split);
    split->addWidget(bars_);
    auto* low = new QWidget(split);
    auto* low_row = new QHBoxLayout(low);
    low_row->setContentsMargins(0, 0, 0, 0);
    low_row->addWidget(make_table_view(differences_, "variants.differences", low), 2);
    notes_ = new QPlainTextEdit(low);
    notes_->setObjectName("variants.notes");
    notes_->setAccessibleName("Notes");
    notes_->setPlaceholderText("Notes on the shown variant");
    low_row->addWidget(notes_, 1);
    split->addWidget(low);
    split->setStretchFactor(0, 2);
    split->setStretchFactor(1, 2);
    split->setStretchFactor(2, 1);
    all->addWidget(split, 1);
    connect(view_, &QTableView::activated, this, [this] { session_.show_variant(chosen()); });
    connect(notes_, &QPlainTextEdit::textChanged, this, [this] {
        Project next = session_.project();
        next.variants[static_cast<std::size_t>(next.current)].notes = notes_->toPlainText().toStdString();
        session_.change("Notes", std::move(next), "notes " + QString::number(session_.project().current));
    });
}

int VariantsPage::chosen() const {
    const QModelIndex at = view_->currentIndex();
    if (!at.isValid()) return session_.project().current;
    return qobject_cast<QSortFilterProxyModel*>(view_->model())->mapToSource(at).row();
}

void VariantsPage::rename() {
    const int index = chosen();
    Project next = session_.project();
    Variant& variant = next.variants[static_cast<std::size_t>(index)];
    bool ok = false;
    const QString name = QInputDialog::getText(this, "Rename", "Name of the variant", QLineEdit::Normal, qs(variant.name), &ok);
    if (!ok || name.isEmpty()) return;
    variant.name = name.toStdString();
    session_.change("Rename to " + name, std::move(next));
}

void VariantsPage::remove() {
    const int index = chosen();
    Project next = session_.project();
    if (next.variants.size() < 2) return;
    const QString name = qs(next.variants[static_cast<std::size_t>(index)].name);
    next.variants.erase(next.variants.begin() + index);
    next.current = std::min(next.current > index ? next.current - 1 : next.current, static_cast<int>(next.variants.size()) - 1);
    next.baseline = next.baseline == index ? -1 : next.baseline > index ? next.baseline - 1 : next.baseline;
    session_.change("Remove " + name, std::move(next));
}

void VariantsPage::refresh() {
    model_.set(variants_table(session_));
    differences_.set(differences_table(session_));
    bars_->updateGeometry();
    bars_->update();
    const QString notes = qs(session_.project().shown().notes);
    if (notes_->toPlainText() != notes) {
        const QSignalBlocker blocked(notes_);
        notes_->setPlainText(notes);
    }
}

MemoryBar::MemoryBar(QWidget* parent) : QWidget(parent) {
    setObjectName("details.bar");
    setAccessibleName("Memory of the fullest GPU");
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
}

void MemoryBar::show_memory(const model::MemoryFit& memory) {
    memory_ = memory;
    update();
}

void MemoryBar::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    const Theme& t = theme();
    const double most = std::max(memory_.total_bytes, memory_.usable_bytes) * 1.02;
    if (!(most > 0)) return;
    const double line = fontMetrics().height();
    const QRectF area(0, line * 1.1, width() - 1, line * 1.5);
    painter.setPen(QPen(t.border));
    painter.setBrush(t.base);
    painter.drawRect(area);
    const auto x_of = [&](double bytes) { return area.left() + bytes / most * area.width(); };
    double at = 0;
    int n = 0;
    for (const model::MemoryPart& part : memory_.parts) {
        const QRectF box(QPointF(x_of(at), area.top()), QPointF(x_of(at + part.bytes), area.bottom()));
        QColor fill = t.series(n++);
        fill.setAlpha(200);
        painter.fillRect(box, fill);
        const QString text = qs(part.name) + "  " + fixed(part.bytes * 1e-9, 1) + " GB";
        if (fontMetrics().horizontalAdvance(text) + 8 < box.width()) {
            painter.setPen(QColor(0xffffff));
            painter.drawText(box, Qt::AlignCenter, text);
        }
        at += part.bytes;
    }
    const double limit = x_of(memory_.usable_bytes);
    painter.setPen(QPen(memory_.fits ? t.good : t.bad, 2, Qt::DashLine));
    painter.drawLine(QPointF(limit, area.top() - 4), QPointF(limit, area.bottom() + 4));
    painter.drawText(QRectF(0, 0, limit - 4, line), Qt::AlignRight, "usable " + fixed(memory_.usable_bytes * 1e-9, 1) + " GB");
    painter.setPen(t.muted);
    painter.drawText(QRectF(0, area.bottom() + 3, width(), line), Qt::AlignLeft,
                     fixed(memory_.total_bytes * 1e-9, 1) + " GB on the fullest GPU, in the order of the table");
}

DetailsPage::DetailsPage(Session& session, QWidget* parent) : Page(session, "details", "Operations", parent) {
    auto* all = new QVBoxLayout(this);
    all->setContentsMargins(8, 6, 8, 0);
    verdict_ = new QLabel(this);
    verdict_->setWordWrap(true);
    all->addWidget(verdict_);
    bar_ = new MemoryBar(this);
    all->addWidget(bar_);
    auto* split = new QSplitter(Qt::Vertical, this);
    QTableView* memory = make_table_view(memory_, "details.memory", split);
    split->addWidget(memory);
    auto* tabs = new QTabWidget(split);
    auto* operations = new QWidget(tabs);
    auto* column = new QVBoxLayout(operations);
    column->setContentsMargins(0, 4, 0, 0);
    auto* search = new QLineEdit(operations);
    search->setPlaceholderText("Filter operations");
    search->setAccessibleName("Filter operations");
    search->setClearButtonEnabled(true);
    column->addWidget(search);
    QTableView* table = make_table_view(operations_, "details.operations", operations);
    column->addWidget(table, 1);
    connect(search, &QLineEdit::textChanged, qobject_cast<QSortFilterProxyModel*>(table->model()),
            &QSortFilterProxyModel::setFilterFixedString);
    tabs->addTab(operations, "Operations");
    tabs->addTab(make_table_view(constants_, "details.constants", tabs), "Constants");
    split->addWidget(tabs);
    split->setStretchFactor(0, 1);
    split->setStretchFactor(1, 1);
    all->addWidget(split, 1);
}

void DetailsPage::refresh() {
    if (const AnswerPointer answer = session_.answer()) {
        memory_.set(memory_table(*answer));
        const model::MemoryFit& fit = answer->prediction.memory;
        bar_->show_memory(fit);
        verdict_->setText(qs(fit.verdict) + "  Longest context at this batch: " + QString::number(fit.max_context) +
                          " tokens; most sequences at this context: " + QString::number(fit.max_sequences) + ".");
    }
    if (const auto details = session_.details()) {
        operations_.set(operations_table(*details, "", ""));
        constants_.set(constants_table(details->explanation));
    }
}

}  // namespace draftboard::gui
