// SPDX-License-Identifier: Apache-2.0
#include "gui/views/answer_panel.h"

#include <QEvent>
#include <QHBoxLayout>
#include <QLabel>
#include <QVBoxLayout>
#include <algorithm>

#include "gui/models/text.h"
#include "gui/views/theme.h"

namespace draftboard::gui {

namespace {

constexpr double kGb = 1e9;

QLabel* label(const QString& name, double scale, bool bold, QWidget* parent) {
    auto* out = new QLabel(parent);
    out->setObjectName(name);
    QFont font = out->font();
    font.setPointSizeF(font.pointSizeF() * scale);
    font.setBold(bold);
    out->setFont(font);
    out->setTextInteractionFlags(Qt::TextSelectableByMouse);
    return out;
}

void colour(QLabel* label, const QColor& value) {
    QPalette palette = label->palette();
    palette.setColor(QPalette::WindowText, value);
    label->setPalette(palette);
}

}  // namespace

AnswerPanel::AnswerPanel(Session& session, QWidget* parent) : QFrame(parent), session_(session) {
    setObjectName("answer");
    setAccessibleName("Answer");
    setFrameShape(QFrame::NoFrame);
    auto* all = new QVBoxLayout(this);
    all->setContentsMargins(12, 8, 12, 8);
    all->setSpacing(4);
    row_ = new QWidget(this);
    auto* row = new QHBoxLayout(row_);
    row->setContentsMargins(0, 0, 0, 0);
    row->setSpacing(22);
    all->addWidget(row_);
    add_figure("tokens_per_second", "tokens per second", "All sequences together, with its 90 % interval", true);
    add_figure("speedup", "speed-up", "Over plain decoding of the same model on the same box", true);
    add_figure("acceptance_length", "acceptance length", "Mean tokens a cycle, bonus token included", false);
    add_figure("break_even", "break-even length", "Acceptance length at which speculation begins to pay: cycle / plain step",
               false);
    add_figure("cycle", "cycle", "Draft + verify + host, milliseconds", false);
    add_figure("plain", "plain decoding", "Tokens per second without speculation", false);
    add_figure("memory", "memory", "Of the fullest GPU", false);
    row->addStretch(1);
    verdict_ = label("answer.verdict", 1.08, true, this);
    verdict_->setWordWrap(true);
    all->addWidget(verdict_);
    auto* low = new QHBoxLayout;
    low->setSpacing(16);
    coverage_ = label("answer.coverage", 0.95, false, this);
    warnings_ = label("answer.warnings", 0.95, false, this);
    low->addWidget(coverage_);
    low->addWidget(warnings_, 1);
    warnings_->setMinimumWidth(60);
    warnings_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
    all->addLayout(low);
    connect(&session_, &Session::asked, this, [this] { show_stale(true); });
    connect(&session_, &Session::answered, this, [this] { refresh(); });
    connect(&session_, &Session::comparison_changed, this, [this] { refresh(); });
    refresh();
}

QString AnswerPanel::figure(const QString& name) const {
    const auto at = figures_.find(name);
    return at == figures_.end() ? QString() : at->second.value->text();
}

void AnswerPanel::add_figure(const QString& name, const QString& title, const QString& tip, bool large) {
    auto* block = new QWidget(row_);
    auto* column = new QVBoxLayout(block);
    column->setContentsMargins(0, 0, 0, 0);
    column->setSpacing(0);
    QLabel* head = label("answer." + name + ".title", 0.92, false, block);
    head->setText(title);
    Figure figure;
    figure.title = head;
    figure.value = label("answer." + name, large ? 1.9 : 1.45, true, block);
    figure.below = label("answer." + name + ".below", 0.92, false, block);
    figure.difference = label("answer." + name + ".difference", 0.92, true, block);
    column->addWidget(head);
    column->addStretch(1);
    column->addWidget(figure.value);
    column->addWidget(figure.below);
    column->addWidget(figure.difference);
    block->setToolTip(tip);
    block->setAccessibleName(title);
    figures_[name] = figure;
    row_->layout()->addWidget(block);
}

void AnswerPanel::set_figure(const QString& name, const QString& value, const QString& below, const QString& difference,
                             int better) {
    const Figure& figure = figures_[name];
    figure.value->setText(value);
    figure.below->setText(below);
    figure.difference->setText(difference);
    colour(figure.title, theme().muted);
    colour(figure.below, theme().muted);
    colour(figure.difference, better > 0 ? theme().good : better < 0 ? theme().bad : theme().muted);
}

void AnswerPanel::show_stale(bool stale) {
    const auto set = [stale](QWidget* widget) { widget->setEnabled(!stale); };
    set(row_);
    set(verdict_);
}

void AnswerPanel::elide_warnings() {
    warnings_->setText(warnings_->fontMetrics().elidedText(warning_text_, Qt::ElideRight, std::max(60, warnings_->width() - 4)));
}

void AnswerPanel::resizeEvent(QResizeEvent* event) {
    QFrame::resizeEvent(event);
    elide_warnings();
}

void AnswerPanel::changeEvent(QEvent* event) {
    QFrame::changeEvent(event);
    if (event->type() == QEvent::PaletteChange && verdict_ != nullptr) refresh();
}

void AnswerPanel::refresh() {
    show_stale(session_.stale());
    if (const auto& error = session_.error(); error && !session_.stale()) {
        verdict_->setText("No answer: " + qs(error->message) + (error->hint.empty() ? "" : " (" + qs(error->hint) + ")"));
        verdict_->setToolTip(qs(error->to_text()));
        colour(verdict_, theme().bad);
        row_->setEnabled(false);
        return;
    }
    const AnswerPointer answer = session_.answer();
    if (!answer) return;
    const sim::Prediction& p = answer->prediction;
    const AnswerPointer baseline = session_.project().baseline == session_.project().current ? nullptr : session_.baseline();
    const sim::Prediction* b = baseline ? &baseline->prediction : nullptr;
    const bool speculates = answer->scenario.speculation.method != model::SpeculationMethod::none;
    const auto against = [&](double value, double reference) {
        return b == nullptr ? QString() : change_text(value, reference) + " vs pinned";
    };
    const auto sign = [&](double value, double reference) {
        return b == nullptr ? 0 : value > reference * 1.0005 ? 1 : value < reference * 0.9995 ? -1 : 0;
    };

    set_figure("tokens_per_second", fixed(p.tokens_per_second.value, 1), range_text(p.tokens_per_second, 1),
               against(p.tokens_per_second.value, b ? b->tokens_per_second.value : 0),
               sign(p.tokens_per_second.value, b ? b->tokens_per_second.value : 0));
    set_figure("speedup", speculates ? fixed(p.speedup.value, 2) + " x" : "1.00 x",
               speculates ? range_text(p.speedup, 2) : "plain decoding", against(p.speedup.value, b ? b->speedup.value : 0),
               sign(p.speedup.value, b ? b->speedup.value : 0));
    colour(figures_["speedup"].value, !speculates ? theme().text : p.speedup.value >= 1 ? theme().good : theme().bad);
    set_figure("acceptance_length", fixed(p.acceptance_length.value, 2), range_text(p.acceptance_length, 2),
               against(p.acceptance_length.value, b ? b->acceptance_length.value : 0),
               sign(p.acceptance_length.value, b ? b->acceptance_length.value : 0));
    set_figure("break_even", fixed(p.break_even_acceptance_length, 2), "tokens a cycle",
               against(p.break_even_acceptance_length, b ? b->break_even_acceptance_length : 0),
               -sign(p.break_even_acceptance_length, b ? b->break_even_acceptance_length : 0));
    set_figure("cycle", fixed(p.cycle_ms, 2) + " ms",
               speculates ? fixed(p.draft_ms, 2) + " + " + fixed(p.verify_ms, 2) + " + " + fixed(p.host_ms, 2) : "one plain step",
               against(p.cycle_ms, b ? b->cycle_ms : 0), -sign(p.cycle_ms, b ? b->cycle_ms : 0));
    set_figure("plain", fixed(p.plain_tokens_per_second.value, 1), "step " + fixed(p.plain_step_ms, 2) + " ms",
               against(p.plain_tokens_per_second.value, b ? b->plain_tokens_per_second.value : 0),
               sign(p.plain_tokens_per_second.value, b ? b->plain_tokens_per_second.value : 0));
    set_figure("memory", p.memory.fits ? "fits" : "does not fit",
               fixed(p.memory.total_bytes / kGb, 1) + " of " + fixed(p.memory.usable_bytes / kGb, 1) + " GB", {}, 0);
    colour(figures_["memory"].value, p.memory.fits ? theme().text : theme().bad);
    figures_["memory"].value->setToolTip(qs(p.memory.verdict));

    verdict_->setText(qs(p.memory.fits ? p.verdict : p.memory.verdict));
    verdict_->setToolTip(qs(p.memory.verdict));
    colour(verdict_, !p.memory.fits || (speculates && p.speedup.value < 1) ? theme().bad : theme().text);
    coverage_->setText("Coverage: " + qs(to_name(p.coverage)) + "    kernels: " + qs(answer->kernels) +
                       "    collectives: " + qs(answer->collectives));
    coverage_->setToolTip("How far the answer is from a measurement; of the parts that carry a tenth of the time, the worst.");
    colour(coverage_, theme().of(p.coverage));
    QString warnings;
    for (const std::string& warning : p.warnings) warnings += (warnings.isEmpty() ? "" : "\n") + qs(warning);
    warnings_->setToolTip(warnings);
    const QString first = p.warnings.empty()
                              ? QString()
                              : QString::number(p.warnings.size()) + (p.warnings.size() == 1 ? " warning: " : " warnings: ") +
                                    qs(p.warnings.front());
    warning_text_ = first;
    elide_warnings();
    colour(warnings_, theme().warn);
}

}  // namespace draftboard::gui
