// SPDX-License-Identifier: Apache-2.0
#include "gui/views/timeline_page.h"

#include <QCheckBox>
#include <QHBoxLayout>
#include <QHelpEvent>
#include <QKeyEvent>
#include <QLabel>
#include <QLineEdit>
#include <QPainter>
#include <QScrollBar>
#include <QToolButton>
#include <QToolTip>
#include <QVBoxLayout>
#include <algorithm>

#include <fmt/format.h>

#include "gui/models/text.h"
#include "gui/views/theme.h"

namespace draftboard::gui {

namespace {

constexpr int kAxis = 24;
constexpr int kPassBand = 20;
constexpr std::size_t kLinkRows = 6;

QString kind_text(SliceKind kind) {
    switch (kind) {
        case SliceKind::kernel: return "kernel";
        case SliceKind::transport: return "transport and latency";
        case SliceKind::wait: return "waiting for the last rank";
        case SliceKind::contention: return "waiting for memory that both streams use";
    }
    return {};
}

QString duration_text(sim::Time time) {
    const double us = sim::to_us(time);
    return us >= 1000 ? fixed(us / 1000, 3) + " ms" : us >= 1 ? fixed(us, 2) + " us" : fixed(us * 1000, 1) + " ns";
}

}  // namespace

TimelineWidget::TimelineWidget(QWidget* parent) : QWidget(parent) {
    setObjectName("timeline");
    setAccessibleName("Timeline by rank and stream");
    setFocusPolicy(Qt::StrongFocus);
    setMouseTracking(true);
}

double TimelineWidget::label_width() const { return fontMetrics().horizontalAdvance("rank 15 side") + 14; }

int TimelineWidget::link_rows() const { return static_cast<int>(busiest_.size()); }

double TimelineWidget::row_height() const {
    if (!details_ || details_->timeline.rows.empty()) return 1;
    const double all = static_cast<double>(details_->timeline.rows.size()) + 0.8 * link_rows() + (link_rows() > 0 ? 0.6 : 0);
    return std::clamp((height() - kAxis - kPassBand - 4) / all, 12.0, 64.0);
}

QRect TimelineWidget::row_rect(std::size_t row) const {
    const double high = row_height();
    return QRectF(label_width(), kAxis + kPassBand + static_cast<double>(row) * high, view_.width(), high).toRect();
}

QSize TimelineWidget::minimumSizeHint() const {
    const int rows = details_ ? static_cast<int>(details_->timeline.rows.size()) + link_rows() : 8;
    return {300, kAxis + kPassBand + rows * 12 + 16};
}

void TimelineWidget::show_timeline(std::shared_ptr<const Details> details, const model::Machine* machine) {
    const bool fresh = details != details_;
    details_ = std::move(details);
    link_names_.clear();
    link_capacity_.clear();
    busiest_.clear();
    if (details_ && machine != nullptr) {
        const auto& tracks = details_->timeline.links;
        std::vector<std::pair<double, std::size_t>> order;
        for (std::size_t i = 0; i < tracks.size(); ++i) {
            const model::MachineLink& link = machine->links[static_cast<std::size_t>(tracks[i].link)];
            const std::string& from = machine->nodes[static_cast<std::size_t>(tracks[i].forward ? link.a : link.b)].id;
            const std::string& to = machine->nodes[static_cast<std::size_t>(tracks[i].forward ? link.b : link.a)].id;
            link_names_.push_back(qs(from) + QString::fromUtf8("\u2192") + qs(to));
            const double capacity = (tracks[i].forward ? link.forward : link.backward).write_gb_s * 1e9;
            link_capacity_.push_back(capacity);
            double peak = 0;
            for (const LinkUse& use : tracks[i].uses) peak = std::max(peak, use.bytes_per_s);
            order.emplace_back(capacity > 0 ? peak / capacity : 0, i);
        }
        std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
        for (std::size_t i = 0; i < std::min(kLinkRows, order.size()); ++i) busiest_.push_back(order[i].second);
        std::sort(busiest_.begin(), busiest_.end());
    }
    if (fresh) {
        hovered_.reset();
        if (details_) {
            hits_ = find_slices(details_->timeline, search_.toStdString());
            if (chosen_ && (chosen_->row >= details_->timeline.rows.size() ||
                            chosen_->slice >= details_->timeline.rows[chosen_->row].slices.size())) {
                chosen_.reset();
            }
            view_.set_extent(details_->timeline.total, width() - label_width() - 6);
        }
    }
    updateGeometry();
    changed();
}

void TimelineWidget::set_stale(bool stale) {
    if (stale_ == stale) return;
    stale_ = stale;
    update();
}

void TimelineWidget::set_search(const QString& text) {
    search_ = text;
    hits_ = details_ ? find_slices(details_->timeline, text.toStdString()) : std::vector<SliceRef>();
    update();
}

void TimelineWidget::set_critical_only(bool on) {
    critical_only_ = on;
    update();
}

void TimelineWidget::next_hit(int step) {
    if (hits_.empty()) return;
    std::ptrdiff_t at = step > 0 ? -1 : 0;
    for (std::size_t i = 0; chosen_ && i < hits_.size(); ++i) {
        if (hits_[i] == *chosen_) at = static_cast<std::ptrdiff_t>(i);
    }
    const auto count = static_cast<std::ptrdiff_t>(hits_.size());
    const SliceRef hit = hits_[static_cast<std::size_t>((at + step + count) % count)];
    const Slice& slice = details_->timeline.rows[hit.row].slices[hit.slice];
    const sim::Time span = view_.to() - view_.from();
    if (slice.start < view_.from() || slice.end > view_.to())
        view_.show((slice.start + slice.end - span) / 2, (slice.start + slice.end + span) / 2);
    choose(hit);
    changed();
}

QString TimelineWidget::ruler_text() const {
    if (!details_ || ruler_end_ <= ruler_start_) return {};
    const StretchSum sum = sum_stretch(details_->timeline, ruler_start_, ruler_end_);
    return duration_text(ruler_end_ - ruler_start_) + ": kernels " + fixed(sum.kernel_ms, 3) + ", transport " +
           fixed(sum.transport_ms, 3) + ", wait " + fixed(sum.wait_ms, 3) + ", idle " + fixed(sum.idle_ms, 3) +
           " ms (mean over ranks)";
}

void TimelineWidget::changed() {
    update();
    emit view_changed();
}

void TimelineWidget::resizeEvent(QResizeEvent*) {
    view_.set_extent(details_ ? details_->timeline.total : 1, width() - label_width() - 6);
    emit view_changed();
}

void TimelineWidget::wheelEvent(QWheelEvent* event) {
    const double x = event->position().x() - label_width();
    const int turn = event->angleDelta().y() != 0 ? event->angleDelta().y() : event->angleDelta().x();
    if (event->modifiers() & Qt::ShiftModifier)
        view_.pan(-turn / 2.0);
    else
        view_.zoom(turn > 0 ? 1.25 : 0.8, std::clamp(x, 0.0, view_.width()));
    changed();
    event->accept();
}

std::optional<SliceRef> TimelineWidget::slice_at(QPoint point) const {
    if (!details_) return {};
    for (std::size_t row = 0; row < details_->timeline.rows.size(); ++row) {
        const QRect at = row_rect(row);
        if (point.y() < at.top() || point.y() > at.bottom() || point.x() < at.left()) continue;
        if (const auto slice = view_.slice_at(details_->timeline.rows[row], point.x() - label_width()))
            return SliceRef{row, *slice};
    }
    return {};
}

void TimelineWidget::choose(SliceRef slice) {
    chosen_ = slice;
    update();
    emit chosen_operation(qs(details_->timeline.key(details_->timeline.rows[slice.row].slices[slice.slice])));
}

void TimelineWidget::mousePressEvent(QMouseEvent* event) {
    press_x_ = event->position().x();
    ruler_from_ = press_x_;
    ruler_start_ = ruler_end_ = 0;
    changed();
}

void TimelineWidget::mouseMoveEvent(QMouseEvent* event) {
    const double x = event->position().x() - label_width();
    if (x >= 0 && x <= view_.width()) emit time_changed(view_.time_at(x));
    if (press_x_ >= 0 && std::abs(event->position().x() - press_x_) > 3) {
        const double a = std::clamp(std::min(ruler_from_, event->position().x()) - label_width(), 0.0, view_.width());
        const double b = std::clamp(std::max(ruler_from_, event->position().x()) - label_width(), 0.0, view_.width());
        ruler_start_ = view_.time_at(a);
        ruler_end_ = view_.time_at(b);
        changed();
        return;
    }
    const auto now = slice_at(event->pos());
    if (now != hovered_) {
        hovered_ = now;
        update();
    }
}

void TimelineWidget::mouseReleaseEvent(QMouseEvent* event) {
    const bool click = press_x_ >= 0 && std::abs(event->position().x() - press_x_) <= 3;
    press_x_ = -1;
    if (click) {
        if (const auto slice = slice_at(event->pos())) choose(*slice);
    }
}

void TimelineWidget::mouseDoubleClickEvent(QMouseEvent* event) {
    const auto slice = slice_at(event->pos());
    if (!slice) return;
    const Slice& of = details_->timeline.rows[slice->row].slices[slice->slice];
    const sim::Time air = (of.end - of.start) * 2;
    view_.show(of.start - air, of.end + air);
    changed();
}

void TimelineWidget::keyPressEvent(QKeyEvent* event) {
    const double middle = view_.width() / 2;
    switch (event->key()) {
        case Qt::Key_W:
        case Qt::Key_Plus: view_.zoom(1.5, middle); break;
        case Qt::Key_S:
        case Qt::Key_Minus: view_.zoom(1 / 1.5, middle); break;
        case Qt::Key_A: view_.pan(-view_.width() / 6); break;
        case Qt::Key_D: view_.pan(view_.width() / 6); break;
        case Qt::Key_0: view_.reset(); break;
        case Qt::Key_F:
            if (ruler_end_ > ruler_start_) view_.show(ruler_start_, ruler_end_);
            break;
        case Qt::Key_Left:
        case Qt::Key_Right:
        case Qt::Key_Up:
        case Qt::Key_Down: {
            if (!details_ || details_->timeline.rows.empty()) return;
            SliceRef at = chosen_.value_or(SliceRef{0, 0});
            const auto& rows = details_->timeline.rows;
            if (event->key() == Qt::Key_Right) at.slice = std::min(at.slice + 1, rows[at.row].slices.size() - 1);
            if (event->key() == Qt::Key_Left && at.slice > 0) --at.slice;
            if (event->key() == Qt::Key_Down && at.row + 1 < rows.size()) ++at.row;
            if (event->key() == Qt::Key_Up && at.row > 0) --at.row;
            if (rows[at.row].slices.empty()) return;
            at.slice = std::min(at.slice, rows[at.row].slices.size() - 1);
            const Slice& slice = rows[at.row].slices[at.slice];
            const sim::Time span = view_.to() - view_.from();
            if (slice.end < view_.from() || slice.start > view_.to()) view_.show(slice.start - span / 2, slice.start + span / 2);
            choose(at);
            break;
        }
        default: QWidget::keyPressEvent(event); return;
    }
    changed();
}

QString TimelineWidget::describe(SliceRef at) const {
    const TimelineRow& row = details_->timeline.rows[at.row];
    const Slice& slice = row.slices[at.slice];
    return qs(details_->timeline.key(slice)) + "\n" + qs(row.name) + ", " + kind_text(slice.kind) +
           (slice.critical ? ", on the critical path" : "") + "\n" + duration_text(slice.end - slice.start) + " from " +
           duration_text(slice.start);
}

bool TimelineWidget::event(QEvent* event) {
    if (event->type() == QEvent::ToolTip) {
        const auto* help = static_cast<QHelpEvent*>(event);
        if (const auto slice = slice_at(help->pos()))
            QToolTip::showText(help->globalPos(), describe(*slice), this);
        else
            QToolTip::hideText();
        return true;
    }
    return QWidget::event(event);
}

void TimelineWidget::paint_links(QPainter& painter, double top) {
    const Theme& t = theme();
    const double high = row_height() * 0.8;
    const double left = label_width();
    for (std::size_t i = 0; i < busiest_.size(); ++i) {
        const LinkTrack& track = details_->timeline.links[busiest_[i]];
        const double capacity = link_capacity_[busiest_[i]];
        const double y = top + static_cast<double>(i) * high;
        painter.setPen(t.muted);
        painter.drawText(QRectF(6, y, left - 10, high), Qt::AlignVCenter | Qt::AlignLeft,
                         fontMetrics().elidedText(link_names_[busiest_[i]], Qt::ElideRight, static_cast<int>(left) - 10));
        painter.setPen(QPen(t.grid));
        painter.drawLine(QPointF(left, y + high), QPointF(left + view_.width(), y + high));
        if (!(capacity > 0)) continue;
        QColor colour = t.of(sim::TermKind::transport);
        colour.setAlpha(stale_ ? 80 : 220);
        // The largest load of each pixel.
        const auto& uses = track.uses;
        auto use = std::partition_point(uses.begin(), uses.end(), [&](const LinkUse& u) { return u.at < view_.from(); });
        double load = use == uses.begin() ? 0 : std::prev(use)->bytes_per_s;
        for (int x = 0; x < static_cast<int>(view_.width()); ++x) {
            double most = load;
            const sim::Time end = view_.time_at(x + 1);
            for (; use != uses.end() && use->at < end; ++use) {
                load = use->bytes_per_s;
                most = std::max(most, load);
            }
            if (most <= 0) continue;
            const double bar = std::min(1.0, most / capacity) * (high - 2);
            painter.fillRect(QRectF(left + x, y + high - bar, 1, bar), colour);
        }
    }
}

void TimelineWidget::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    const Theme& t = theme();
    painter.fillRect(rect(), t.base);
    if (!details_ || details_->timeline.rows.empty()) {
        painter.setPen(t.muted);
        painter.drawText(rect(), Qt::AlignCenter, "Simulating");
        return;
    }
    const Timeline& timeline = details_->timeline;
    const double left = label_width();
    const double high = row_height();
    const double bottom = kAxis + kPassBand + high * static_cast<double>(timeline.rows.size());
    for (const Tick& tick : view_.ticks()) {
        painter.setPen(QPen(t.grid));
        painter.drawLine(QPointF(left + tick.x, kAxis - 3), QPointF(left + tick.x, height()));
        painter.setPen(t.muted);
        const double wide = fontMetrics().horizontalAdvance(qs(tick.label)) + 4;
        const double at = std::min(left + tick.x - wide / 2, width() - wide);
        painter.drawText(QRectF(std::max(at, left - wide / 2), 2, wide, kAxis - 6), Qt::AlignCenter, qs(tick.label));
    }
    for (std::size_t i = 0; i < timeline.passes.size(); ++i) {
        const TimelinePass& pass = timeline.passes[i];
        const double a = std::max(0.0, view_.x_of(pass.start));
        const double b = std::min(view_.width(), view_.x_of(pass.end));
        if (b <= a) continue;
        const QRectF band(left + a, kAxis, b - a - 1, kPassBand - 3);
        painter.fillRect(band, t.raised);
        painter.setPen(t.text);
        const QString name = qs(pass.name) + "  " + duration_text(pass.end - pass.start);
        const QString shown = fontMetrics().horizontalAdvance(name) + 6 < band.width()
                                  ? name
                                  : fontMetrics().elidedText(qs(pass.name), Qt::ElideRight, static_cast<int>(band.width()) - 4);
        if (band.width() > 24) painter.drawText(band, Qt::AlignCenter, shown);
    }
    for (std::size_t row = 0; row < timeline.rows.size(); ++row) {
        const QRect at = row_rect(row);
        painter.setPen(t.text);
        painter.drawText(QRectF(6, at.top(), left - 8, high), Qt::AlignVCenter | Qt::AlignLeft, qs(timeline.rows[row].name));
    }
    const double inset = std::min(3.0, high * 0.14);
    const QBrush wait = t.hatch(t.of(sim::TermKind::wait));
    for (const Mark& mark : view_.marks(timeline)) {
        const QRectF box(left + mark.left, kAxis + kPassBand + static_cast<double>(mark.row) * high + inset,
                         std::max(mark.right - mark.left, 0.7), high - 2 * inset);
        QColor colour = t.of(mark.kind, mark.term);
        const bool dim = stale_ || (critical_only_ && !mark.critical);
        if (dim) colour.setAlpha(45);
        if (mark.kind == SliceKind::wait && !dim && box.width() > 2)
            painter.fillRect(box, wait);
        else {
            if (mark.kind == SliceKind::wait) colour.setAlpha(dim ? 30 : 110);
            painter.fillRect(box, colour);
        }
        if (mark.slice >= 0 && box.width() > 46 && high > fontMetrics().height()) {
            const Slice& slice = timeline.rows[mark.row].slices[static_cast<std::size_t>(mark.slice)];
            const std::string& key = timeline.key(slice);
            const bool on_light = mark.kind == SliceKind::wait || colour.lightness() > 120;
            painter.setPen(mark.kind == SliceKind::wait ? t.text : on_light ? QColor(0x14171a) : QColor(0xffffff));
            painter.drawText(
                box.adjusted(3, 0, -2, 0), Qt::AlignVCenter | Qt::AlignLeft,
                fontMetrics().elidedText(qs(key.substr(key.rfind('/') + 1)), Qt::ElideRight, static_cast<int>(box.width()) - 5));
        }
    }
    const auto outline = [&](SliceRef at, const QColor& colour, double pen) {
        const Slice& slice = timeline.rows[at.row].slices[at.slice];
        const double a = std::max(view_.x_of(slice.start), 0.0);
        const double b = std::min(view_.x_of(slice.end), view_.width());
        if (b < 0 || a > view_.width()) return;
        painter.setPen(QPen(colour, pen));
        painter.setBrush(Qt::NoBrush);
        painter.drawRect(
            QRectF(left + a, kAxis + kPassBand + static_cast<double>(at.row) * high + 1, std::max(b - a, 2.0), high - 2));
    };
    // Hits are marked as long as they can be told apart.
    std::size_t drawn = 0;
    for (const SliceRef& hit : hits_) {
        if (++drawn > 4000) break;
        outline(hit, t.text, 1);
    }
    if (hovered_) outline(*hovered_, t.muted, 1);
    if (chosen_) outline(*chosen_, t.accent, 2.2);
    if (!busiest_.empty()) {
        const double top = bottom + high * 0.5;
        painter.setPen(QPen(t.border));
        painter.drawLine(QPointF(6, bottom + high * 0.25), QPointF(width() - 6, bottom + high * 0.25));
        paint_links(painter, top);
    }
    if (ruler_end_ > ruler_start_) {
        QColor shade = t.accent;
        shade.setAlpha(40);
        const QRectF stretch(QPointF(left + view_.x_of(ruler_start_), kAxis), QPointF(left + view_.x_of(ruler_end_), height()));
        painter.fillRect(stretch & QRectF(left, 0, view_.width(), height()), shade);
    }
}

TimelinePage::TimelinePage(Session& session, QWidget* parent) : Page(session, "timeline", "Timeline", parent) {
    auto* all = new QVBoxLayout(this);
    all->setContentsMargins(0, 6, 0, 0);
    all->setSpacing(4);
    auto* row = new QHBoxLayout;
    row->setContentsMargins(8, 0, 8, 0);
    search_ = new QLineEdit(this);
    search_->setObjectName("timeline.search");
    search_->setPlaceholderText("Find an operation");
    search_->setAccessibleName("Find an operation");
    search_->setClearButtonEnabled(true);
    search_->setMaximumWidth(240);
    hits_ = new QLabel(this);
    auto* before = new QToolButton(this);
    before->setText(QString::fromUtf8("\u2039"));
    before->setToolTip("Previous hit");
    before->setAccessibleName("Previous hit");
    auto* after = new QToolButton(this);
    after->setText(QString::fromUtf8("\u203a"));
    after->setToolTip("Next hit (Enter)");
    after->setAccessibleName("Next hit");
    auto* critical = new QCheckBox("Critical path", this);
    critical->setObjectName("timeline.critical");
    critical->setToolTip("Dims what does not decide when the cycle ends");
    auto* whole = new QToolButton(this);
    whole->setText("Whole cycle");
    whole->setToolTip("Shows everything (0)");
    ruler_ = new QLabel(this);
    ruler_->setObjectName("timeline.ruler");
    ruler_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
    for (QWidget* widget : {static_cast<QWidget*>(search_), static_cast<QWidget*>(before), static_cast<QWidget*>(after),
                            static_cast<QWidget*>(hits_), static_cast<QWidget*>(critical), static_cast<QWidget*>(whole)}) {
        row->addWidget(widget);
    }
    row->addWidget(ruler_, 1);
    all->addLayout(row);
    widget_ = new TimelineWidget(this);
    all->addWidget(widget_, 1);
    bar_ = new QScrollBar(Qt::Horizontal, this);
    bar_->setAccessibleName("Time");
    all->addWidget(bar_);
    connect(search_, &QLineEdit::textChanged, this, [this](const QString& text) {
        widget_->set_search(text);
        hits_->setText(text.isEmpty() ? QString() : QString::number(widget_->hits().size()) + " hits");
    });
    connect(search_, &QLineEdit::returnPressed, this, [this] { widget_->next_hit(1); });
    connect(before, &QToolButton::clicked, this, [this] { widget_->next_hit(-1); });
    connect(after, &QToolButton::clicked, this, [this] { widget_->next_hit(1); });
    connect(critical, &QCheckBox::toggled, widget_, &TimelineWidget::set_critical_only);
    connect(whole, &QToolButton::clicked, this, [this] {
        widget_->view().reset();
        widget_->update();
        show_range();
    });
    connect(widget_, &TimelineWidget::chosen_operation, this, &TimelinePage::chosen_operation);
    connect(widget_, &TimelineWidget::time_changed, this, &TimelinePage::time_changed);
    connect(widget_, &TimelineWidget::view_changed, this, [this] { show_range(); });
    connect(bar_, &QScrollBar::valueChanged, this, [this](int value) {
        TimelineView& view = widget_->view();
        const sim::Time span = view.to() - view.from();
        const auto from = static_cast<sim::Time>(value) * 1000;
        if (std::abs(from - view.from()) < 1000) return;
        view.show(from, from + span);
        widget_->update();
    });
}

void TimelinePage::show_range() {
    // The bar counts nanoseconds: 2^31 of them are two seconds, far beyond any cycle.
    const TimelineView& view = widget_->view();
    const auto details = session_.details();
    const sim::Time total = details ? details->timeline.total : 1;
    const QSignalBlocker blocked(bar_);
    bar_->setRange(0, static_cast<int>((total - (view.to() - view.from())) / 1000));
    bar_->setPageStep(static_cast<int>(std::max<sim::Time>(1, (view.to() - view.from()) / 1000)));
    bar_->setSingleStep(std::max(1, bar_->pageStep() / 20));
    bar_->setValue(static_cast<int>(view.from() / 1000));
    ruler_->setText(widget_->ruler_text());
}

void TimelinePage::refresh() {
    if (!session_.details() || session_.stale()) return;
    shown_ = session_.answer();
    widget_->set_stale(false);
    widget_->show_timeline(session_.details(), shown_ ? &shown_->scenario.machine : nullptr);
    hits_->setText(search_->text().isEmpty() ? QString() : QString::number(widget_->hits().size()) + " hits");
}

void TimelinePage::mark_stale(bool stale) {
    if (isVisible() && stale) widget_->set_stale(true);
}

std::vector<Table> TimelinePage::tables() const {
    const auto details = session_.details();
    if (!details) return {};
    Table table;
    table.name = "timeline";
    table.columns = {{"row", "", false},     {"operation", "", false},  {"kind", "", false},
                     {"start us", "", true}, {"duration us", "", true}, {"critical", "", false}};
    for (const TimelineRow& row : details->timeline.rows) {
        for (const Slice& slice : row.slices) {
            table.rows.push_back({{qs(row.name), {}, {}, false, 0},
                                  {qs(details->timeline.key(slice)), {}, {}, false, 0},
                                  {kind_text(slice.kind), {}, {}, false, 0},
                                  {qs(fmt::format("{:.6f}", sim::to_us(slice.start))), {}, {}, false, 0},
                                  {qs(fmt::format("{:.6f}", sim::to_us(slice.end - slice.start))), {}, {}, false, 0},
                                  {slice.critical ? "yes" : "", {}, {}, false, 0}});
        }
    }
    return {table};
}

}  // namespace draftboard::gui
