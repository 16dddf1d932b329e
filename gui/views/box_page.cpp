// SPDX-License-Identifier: Apache-2.0
#include "gui/views/box_page.h"

#include <QCheckBox>
#include <QDialog>
#include <QDialogButtonBox>
#include <QFileDialog>
#include <QFormLayout>
#include <QHBoxLayout>
#include <QHelpEvent>
#include <QKeyEvent>
#include <QLabel>
#include <QMouseEvent>
#include <QPainter>
#include <QPainterPath>
#include <QPlainTextEdit>
#include <QPushButton>
#include <QSlider>
#include <QSpinBox>
#include <QToolTip>
#include <QVBoxLayout>
#include <algorithm>
#include <cmath>

#include "gui/core/box_edit.h"
#include "gui/models/text.h"
#include "gui/views/theme.h"
#include "model/data_library.h"
#include "model/fabric_tree.h"
#include "model/import/import_machine.h"
#include "model/link_defaults.h"

namespace draftboard::gui {

namespace {

using model::NodeKind;

QString link_text(const model::Machine& machine, int index) {
    const model::MachineLink& link = machine.links[static_cast<std::size_t>(index)];
    QString text = qs(machine.nodes[static_cast<std::size_t>(link.a)].id) + " - " +
                   qs(machine.nodes[static_cast<std::size_t>(link.b)].id) + ": ";
    text += qs(to_name(link.kind));
    if (link.generation > 0) text += " Gen" + QString::number(link.generation) + " x" + QString::number(link.width);
    text += ", " + fixed(link.forward.write_gb_s, 1) + " GB/s write, " + fixed(link.forward.read_gb_s, 1) + " read, " +
            fixed(link.latency_ns, 0) + " ns";
    return text;
}

/// From cold to hot, told apart by lightness too.
QColor load_colour(double load) {
    const Theme& t = theme();
    if (load <= 0.001) return t.border;
    const QColor low = t.dark ? QColor(0x3d6f9e) : QColor(0x9cc9e8);
    const QColor high = t.dark ? QColor(0xff7f3f) : QColor(0xb83a00);
    const double x = std::clamp(load, 0.0, 1.0);
    return QColor::fromRgbF(static_cast<float>(low.redF() + (high.redF() - low.redF()) * x),
                            static_cast<float>(low.greenF() + (high.greenF() - low.greenF()) * x),
                            static_cast<float>(low.blueF() + (high.blueF() - low.blueF()) * x));
}

}  // namespace

BoxWidget::BoxWidget(QWidget* parent) : QWidget(parent) {
    setObjectName("box");
    setAccessibleName("The box");
    setFocusPolicy(Qt::StrongFocus);
    setMouseTracking(true);
}

void BoxWidget::show_box(const model::Machine& machine, std::vector<double> load) {
    machine_ = machine;
    layout_ = layout_box(machine_);
    load_ = std::move(load);
    const bool gone = (chosen_.kind == Kind::node && chosen_.index >= static_cast<int>(machine_.nodes.size())) ||
                      (chosen_.kind == Kind::link && chosen_.index >= static_cast<int>(machine_.links.size()));
    if (gone) choose({});
    update();
}

void BoxWidget::set_stale(bool stale) {
    stale_ = stale;
    update();
}

void BoxWidget::choose(Choice choice) {
    chosen_ = choice;
    update();
    emit chosen_changed();
}

QPointF BoxWidget::centre(int node) const {
    const BoxNode& at = layout_.nodes[static_cast<std::size_t>(node)];
    const double column = (width() - 24) / layout_.columns;
    const double level = (height() - 40.0) / layout_.levels;
    return {12 + at.column * column, 8 + (at.level + 0.5) * level};
}

QRectF BoxWidget::node_rect(int node) const {
    const double column = (width() - 24) / layout_.columns;
    const double high = std::min(fontMetrics().height() * 2.0, (height() - 40.0) / layout_.levels * 0.56);
    const NodeKind kind = machine_.nodes[static_cast<std::size_t>(node)].kind;
    const bool leaf = kind == NodeKind::gpu || kind == NodeKind::root_port;
    const double wide = leaf ? std::min(column * 0.86, 92.0) : std::min(std::max(column * 1.6, 84.0), 150.0);
    const QPointF middle = centre(node);
    return {middle.x() - wide / 2, middle.y() - high / 2, wide, high};
}

QPointF BoxWidget::link_middle(int link) const {
    const model::MachineLink& of = machine_.links[static_cast<std::size_t>(link)];
    return (centre(of.a) + centre(of.b)) / 2;
}

BoxWidget::Choice BoxWidget::at(QPointF point) const {
    for (std::size_t i = 0; i < layout_.nodes.size(); ++i) {
        if (node_rect(static_cast<int>(i)).contains(point)) return {Kind::node, static_cast<int>(i)};
    }
    int best = -1;
    double nearest = 7;
    for (const BoxLink& link : layout_.links) {
        const QPointF a = centre(link.a);
        const QPointF b = centre(link.b);
        const QPointF along = b - a;
        const double length = std::max(1.0, QPointF::dotProduct(along, along));
        const double share = std::clamp(QPointF::dotProduct(point - a, along) / length, 0.0, 1.0);
        const QPointF off = point - (a + along * share);
        const double distance = std::hypot(off.x(), off.y());
        if (distance < nearest) {
            nearest = distance;
            best = link.link;
        }
    }
    return best < 0 ? Choice{} : Choice{Kind::link, best};
}

void BoxWidget::mousePressEvent(QMouseEvent* event) {
    const Choice hit = at(event->position());
    choose(hit);
    if (hit.kind == Kind::node && machine_.nodes[static_cast<std::size_t>(hit.index)].kind == NodeKind::gpu) {
        dragged_ = hit.index;
        drag_at_ = event->position();
    }
}

void BoxWidget::mouseMoveEvent(QMouseEvent* event) {
    if (dragged_ < 0) return;
    drag_at_ = event->position();
    update();
}

void BoxWidget::mouseReleaseEvent(QMouseEvent* event) {
    const int gpu = dragged_;
    dragged_ = -1;
    update();
    if (gpu < 0 || node_rect(gpu).contains(event->position())) return;
    const Choice target = at(event->position());
    if (target.kind == Kind::node) emit moved(gpu, target.index);
}

void BoxWidget::keyPressEvent(QKeyEvent* event) {
    const int step = event->key() == Qt::Key_Right || event->key() == Qt::Key_Down ? 1
                     : event->key() == Qt::Key_Left || event->key() == Qt::Key_Up  ? -1
                                                                                   : 0;
    if (step == 0 || machine_.nodes.empty()) return QWidget::keyPressEvent(event);
    // Left and right walk over nodes, up and down over links.
    const bool links = event->key() == Qt::Key_Down || event->key() == Qt::Key_Up;
    const Kind kind = links ? Kind::link : Kind::node;
    const int count = static_cast<int>(links ? machine_.links.size() : machine_.nodes.size());
    const int from = chosen_.kind == kind ? chosen_.index : step > 0 ? -1 : count;
    choose({kind, std::clamp(from + step, 0, count - 1)});
}

bool BoxWidget::event(QEvent* event) {
    if (event->type() == QEvent::ToolTip) {
        const auto* help = static_cast<QHelpEvent*>(event);
        const Choice hit = at(help->pos());
        QString text;
        if (hit.kind == Kind::link) {
            text =
                link_text(machine_, hit.index) + "\n" +
                fixed(100 * (static_cast<std::size_t>(hit.index) < load_.size() ? load_[static_cast<std::size_t>(hit.index)] : 0),
                      0) +
                " % used\n" + qs(machine_.links[static_cast<std::size_t>(hit.index)].source);
        } else if (hit.kind == Kind::node) {
            const model::MachineNode& node = machine_.nodes[static_cast<std::size_t>(hit.index)];
            text = qs(node.id) + ", " + qs(to_name(node.kind)) + (node.bus_id.empty() ? "" : "\n" + qs(node.bus_id));
        }
        QToolTip::showText(help->globalPos(), text, this);
        return true;
    }
    return QWidget::event(event);
}

void BoxWidget::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    const Theme& t = theme();
    painter.fillRect(rect(), t.base);
    if (machine_.nodes.empty()) return;
    painter.setOpacity(stale_ ? 0.55 : 1);
    const double column = (width() - 24) / layout_.columns;
    for (const BoxLink& link : layout_.links) {
        const model::MachineLink& of = machine_.links[static_cast<std::size_t>(link.link)];
        const double load = static_cast<std::size_t>(link.link) < load_.size() ? load_[static_cast<std::size_t>(link.link)] : 0;
        const double wide = std::clamp(std::sqrt(of.forward.write_gb_s) / 2.2, 1.5, 6.0);
        QPen pen(load_colour(load), wide);
        pen.setCapStyle(Qt::RoundCap);
        if (of.kind == model::LinkKind::internal) pen.setWidthF(2);
        const QPointF a = centre(link.a);
        const QPointF b = centre(link.b);
        QPainterPath path(a);
        if (of.kind == model::LinkKind::nvlink && std::abs(a.y() - b.y()) < 4)
            path.quadTo((a + b) / 2 + QPointF(0, 40 + std::abs(a.x() - b.x()) * 0.1), b);
        else
            path.lineTo(b);
        if (chosen_ == Choice{Kind::link, link.link}) {
            painter.setPen(QPen(t.accent, wide + 5));
            painter.drawPath(path);
        }
        painter.setPen(pen);
        painter.setBrush(Qt::NoBrush);
        painter.drawPath(path);
    }
    // Words on links where there is room for them.
    for (const BoxLink& link : layout_.links) {
        const model::MachineLink& of = machine_.links[static_cast<std::size_t>(link.link)];
        const double load = static_cast<std::size_t>(link.link) < load_.size() ? load_[static_cast<std::size_t>(link.link)] : 0;
        if (of.kind != model::LinkKind::pcie && of.kind != model::LinkKind::inter_socket) continue;
        QString text = of.kind == model::LinkKind::pcie
                           ? "Gen" + QString::number(of.generation) + " x" + QString::number(of.width)
                           : fixed(of.forward.write_gb_s, 0) + " GB/s";
        if (load > 0.005) text += "\n" + fixed(100 * load, 0) + " %";
        const double wide = fontMetrics().horizontalAdvance("Gen5 x16") + 6;
        if (of.kind == model::LinkKind::pcie && wide > column * 0.98) continue;
        const QPointF middle = (centre(link.a) + centre(link.b)) / 2;
        const QRectF box(middle.x() - wide / 2, middle.y() - fontMetrics().height() * (load > 0.005 ? 1.0 : 0.5), wide,
                         fontMetrics().height() * (load > 0.005 ? 2.0 : 1.0));
        QColor back = t.base;
        back.setAlpha(215);
        painter.fillRect(box, back);
        painter.setPen(t.muted);
        painter.drawText(box, Qt::AlignCenter, text);
    }
    for (std::size_t i = 0; i < machine_.nodes.size(); ++i) {
        const model::MachineNode& node = machine_.nodes[i];
        const QRectF box = node_rect(static_cast<int>(i));
        const bool gpu = node.kind == NodeKind::gpu;
        QColor fill = gpu                                                                     ? t.of(sim::TermKind::attention)
                      : node.kind == NodeKind::pcie_switch || node.kind == NodeKind::nvswitch ? t.of(sim::TermKind::latency)
                                                                                              : t.raised;
        if (gpu || fill != t.raised) fill.setAlpha(t.dark ? 120 : 75);
        painter.setBrush(fill);
        painter.setPen(QPen(chosen_ == Choice{Kind::node, static_cast<int>(i)} ? t.accent : t.border,
                            chosen_ == Choice{Kind::node, static_cast<int>(i)} ? 2.5 : 1));
        QColor solid = t.base;
        painter.setBrush(solid);
        painter.drawRoundedRect(box, 4, 4);
        painter.setBrush(fill);
        painter.drawRoundedRect(box, 4, 4);
        painter.setPen(t.text);
        painter.drawText(box, Qt::AlignCenter,
                         fontMetrics().elidedText(qs(node.id), Qt::ElideRight, static_cast<int>(box.width()) - 4));
    }
    painter.setOpacity(1);
    if (dragged_ >= 0) {
        painter.setPen(QPen(t.accent, 1.5, Qt::DashLine));
        painter.setBrush(Qt::NoBrush);
        painter.drawRoundedRect(QRectF(drag_at_ - QPointF(30, 10), QSizeF(60, 20)), 4, 4);
    }
    // The scale of colours.
    const double y = height() - 24;
    const double left = 12;
    painter.setPen(t.muted);
    painter.drawText(QRectF(left, y, 70, 20), Qt::AlignVCenter | Qt::AlignLeft, "link use");
    const double from = left + fontMetrics().horizontalAdvance("link use  ");
    for (int i = 0; i <= 100; ++i) painter.fillRect(QRectF(from + i, y + 6, 1.2, 9), load_colour(i / 100.0));
    painter.drawText(QRectF(from + 108, y, 200, 20), Qt::AlignVCenter | Qt::AlignLeft, "0 to 100 % of capacity");
}

BoxPage::BoxPage(Session& session, QWidget* parent) : Page(session, "box", "Box", parent) {
    auto* all = new QVBoxLayout(this);
    all->setContentsMargins(0, 6, 0, 4);
    all->setSpacing(4);
    auto* row = new QHBoxLayout;
    row->setContentsMargins(8, 0, 8, 0);
    auto* paste_button = new QPushButton("Paste a topology...", this);
    paste_button->setObjectName("box.paste");
    paste_button->setToolTip("`nvidia-smi topo -m`, NCCL's topology XML or lstopo's XML");
    auto* open_button = new QPushButton("Open a topology...", this);
    edit_ = new QPushButton("Edit link...", this);
    edit_->setObjectName("box.edit");
    edit_->setToolTip("Generation and width of the chosen PCIe link");
    switch_ = new QPushButton("Add a switch", this);
    switch_->setObjectName("box.switch");
    switch_->setToolTip("Puts a PCIe switch below the chosen root port or switch, with the GPUs of its NUMA node below it");
    peak_ = new QCheckBox("Peak of the cycle", this);
    peak_->setObjectName("box.peak");
    peak_->setChecked(true);
    time_ = new QSlider(Qt::Horizontal, this);
    time_->setObjectName("box.time");
    time_->setAccessibleName("Time in the cycle");
    time_->setRange(0, 10000);
    time_->setEnabled(false);
    time_text_ = new QLabel(this);
    time_text_->setMinimumWidth(fontMetrics().horizontalAdvance("at 100.000 ms"));
    for (QPushButton* button : {paste_button, open_button, edit_, switch_}) row->addWidget(button);
    row->addWidget(peak_);
    row->addWidget(time_, 1);
    row->addWidget(time_text_);
    all->addLayout(row);
    widget_ = new BoxWidget(this);
    all->addWidget(widget_, 1);
    text_ = new QLabel(this);
    text_->setObjectName("box.text");
    text_->setContentsMargins(10, 0, 10, 0);
    text_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
    message_ = new QLabel(this);
    message_->setObjectName("box.message");
    message_->setContentsMargins(10, 0, 10, 0);
    message_->setWordWrap(true);
    message_->hide();
    all->addWidget(text_);
    all->addWidget(message_);
    connect(paste_button, &QPushButton::clicked, this, [this] { paste(); });
    connect(open_button, &QPushButton::clicked, this, [this] { open_file(); });
    connect(edit_, &QPushButton::clicked, this, [this] { edit_chosen(); });
    connect(switch_, &QPushButton::clicked, this, [this] { add_switch(); });
    connect(peak_, &QCheckBox::toggled, this, [this](bool on) {
        time_->setEnabled(!on);
        show_load();
    });
    connect(time_, &QSlider::valueChanged, this, [this] { show_load(); });
    connect(widget_, &BoxWidget::chosen_changed, this, [this] { show_choice(); });
    connect(widget_, &BoxWidget::moved, this, [this](int gpu, int target) {
        if (const AnswerPointer answer = session_.answer())
            apply("Move a GPU", with_moved_gpu(answer->scenario.machine, gpu, target));
    });
    show_choice();
}

void BoxPage::refresh() {
    show_load();
    show_choice();
}

void BoxPage::mark_stale(bool stale) {
    if (isVisible()) widget_->set_stale(stale);
}

void BoxPage::set_time(qint64 picoseconds) {
    const auto details = session_.details();
    if (!details || peak_->isChecked()) return;
    time_->setValue(static_cast<int>(10000.0 * static_cast<double>(picoseconds) /
                                     static_cast<double>(std::max<sim::Time>(1, details->timeline.total))));
}

void BoxPage::show_load() {
    const AnswerPointer answer = session_.answer();
    if (!answer) return;
    const model::Machine& machine = answer->scenario.machine;
    std::vector<double> load(machine.links.size(), 0);
    const auto details = session_.details();
    if (details && !session_.stale()) {
        const Timeline& timeline = details->timeline;
        const auto now = static_cast<sim::Time>(time_->value() / 10000.0 * static_cast<double>(timeline.total));
        for (const LinkTrack& track : timeline.links) {
            const auto index = static_cast<std::size_t>(track.link);
            if (index >= load.size()) continue;
            const model::MachineLink& link = machine.links[index];
            const double capacity = (track.forward ? link.forward : link.backward).write_gb_s * 1e9;
            double use = 0;
            if (peak_->isChecked()) {
                for (const LinkUse& at : track.uses) use = std::max(use, at.bytes_per_s);
            } else {
                use = track.at(now);
            }
            if (capacity > 0) load[index] = std::max(load[index], use / capacity);
        }
        time_text_->setText(peak_->isChecked() ? QString() : "at " + fixed(sim::to_ms(now), 3) + " ms");
    }
    widget_->show_box(machine, std::move(load));
    widget_->set_stale(session_.stale());
}

void BoxPage::show_choice() {
    const AnswerPointer answer = session_.answer();
    const BoxWidget::Choice chosen = widget_->chosen();
    QString text = "Choose a link to edit it, a port or switch to hang a switch below it; drag a GPU to move it.";
    bool link = false;
    bool parent = false;
    if (answer && chosen.kind == BoxWidget::Kind::link &&
        chosen.index < static_cast<int>(answer->scenario.machine.links.size())) {
        text = link_text(answer->scenario.machine, chosen.index);
        link = answer->scenario.machine.links[static_cast<std::size_t>(chosen.index)].kind == model::LinkKind::pcie;
    } else if (answer && chosen.kind == BoxWidget::Kind::node &&
               chosen.index < static_cast<int>(answer->scenario.machine.nodes.size())) {
        const model::MachineNode& node = answer->scenario.machine.nodes[static_cast<std::size_t>(chosen.index)];
        text = qs(node.id) + ": " + qs(to_name(node.kind));
        parent = node.kind == NodeKind::root_port || node.kind == NodeKind::pcie_switch;
    }
    text_->setText(text);
    edit_->setEnabled(link);
    switch_->setEnabled(parent);
}

void BoxPage::apply(const QString& what, const model::Expected<model::Machine>& machine) {
    if (!machine) {
        message_->setText(qs(machine.error().to_text()));
        message_->show();
        return;
    }
    message_->hide();
    session_.edit(what, {machine_edit(*machine)});
}

void BoxPage::edit_chosen() {
    const AnswerPointer answer = session_.answer();
    const BoxWidget::Choice chosen = widget_->chosen();
    if (!answer || chosen.kind != BoxWidget::Kind::link) return;
    const model::MachineLink& link = answer->scenario.machine.links[static_cast<std::size_t>(chosen.index)];
    QDialog dialog(this);
    dialog.setWindowTitle("Edit link");
    dialog.setObjectName("box.edit_dialog");
    auto* form = new QFormLayout(&dialog);
    form->addRow(new QLabel(link_text(answer->scenario.machine, chosen.index)));
    auto* generation = new QSpinBox(&dialog);
    generation->setObjectName("box.generation");
    generation->setRange(1, model::kMaxPcieGeneration);
    generation->setValue(link.generation);
    auto* lanes = new QSpinBox(&dialog);
    lanes->setObjectName("box.lanes");
    lanes->setRange(1, 32);
    lanes->setValue(link.width);
    form->addRow("PCIe generation", generation);
    form->addRow("Lanes", lanes);
    auto* buttons = new QDialogButtonBox(QDialogButtonBox::Ok | QDialogButtonBox::Cancel, &dialog);
    form->addRow(buttons);
    connect(buttons, &QDialogButtonBox::accepted, &dialog, &QDialog::accept);
    connect(buttons, &QDialogButtonBox::rejected, &dialog, &QDialog::reject);
    if (dialog.exec() != QDialog::Accepted) return;
    apply("Edit a link", with_link(answer->scenario.machine, chosen.index, generation->value(), lanes->value()));
}

void BoxPage::add_switch() {
    const AnswerPointer answer = session_.answer();
    const BoxWidget::Choice chosen = widget_->chosen();
    if (!answer || chosen.kind != BoxWidget::Kind::node) return;
    const model::Machine& machine = answer->scenario.machine;
    const auto tree = model::build_fabric_tree(machine);
    std::vector<int> below;
    for (const int gpu : machine.gpus()) {
        if (tree.root[static_cast<std::size_t>(gpu)] == tree.root[static_cast<std::size_t>(chosen.index)]) below.push_back(gpu);
    }
    apply("Add a switch", with_switch(machine, chosen.index, below));
}

QString BoxPage::import_text(const QString& text, const QString& name) {
    auto imported = model::import_machine(text.toStdString(), name.toStdString());
    if (!imported) {
        const QString why = qs(imported.error().to_text());
        message_->setText(why);
        message_->show();
        return why;
    }
    // A topology does not say what its GPUs can do: they stay those of the box before.
    const AnswerPointer answer = session_.answer();
    QString note = "Read as " + qs(imported->format) + ".";
    if (answer && imported->machine.gpu.memory_gb_s <= 0) {
        imported->machine.gpu = answer->scenario.machine.gpu;
        if (imported->machine.calibration.empty()) imported->machine.calibration = answer->scenario.machine.calibration;
        note += " GPUs are taken to be " + qs(answer->scenario.machine.gpu.name) + ".";
    }
    for (const std::string& warning : imported->warnings) note += " " + qs(warning) + ".";
    session_.edit("Import " + name, {machine_edit(imported->machine)});
    message_->setText(note);
    message_->show();
    return {};
}

void BoxPage::paste() {
    QDialog dialog(this);
    dialog.setWindowTitle("Paste a topology");
    dialog.setObjectName("box.paste_dialog");
    dialog.resize(720, 420);
    auto* all = new QVBoxLayout(&dialog);
    all->addWidget(new QLabel("The output of `nvidia-smi topo -m`, NCCL's topology XML, or lstopo's XML:", &dialog));
    auto* text = new QPlainTextEdit(&dialog);
    text->setObjectName("box.paste_text");
    text->setAccessibleName("Topology");
    text->setLineWrapMode(QPlainTextEdit::NoWrap);
    QFont mono("DejaVu Sans Mono");
    mono.setStyleHint(QFont::Monospace);
    text->setFont(mono);
    all->addWidget(text, 1);
    auto* why = new QLabel(&dialog);
    why->setObjectName("box.paste_error");
    why->setWordWrap(true);
    all->addWidget(why);
    auto* buttons = new QDialogButtonBox(QDialogButtonBox::Ok | QDialogButtonBox::Cancel, &dialog);
    buttons->button(QDialogButtonBox::Ok)->setText("Import");
    all->addWidget(buttons);
    connect(buttons, &QDialogButtonBox::rejected, &dialog, &QDialog::reject);
    connect(buttons, &QDialogButtonBox::accepted, &dialog, [&] {
        const QString failed = import_text(text->toPlainText(), "pasted");
        if (failed.isEmpty())
            dialog.accept();
        else
            why->setText(failed);
    });
    dialog.exec();
}

void BoxPage::open_file() {
    const QString path =
        QFileDialog::getOpenFileName(this, "Open a topology", {}, "Topologies (*.txt *.xml *.log);;All files (*)");
    if (path.isEmpty()) return;
    auto text = model::read_file(path.toStdString());
    if (!text) {
        message_->setText(qs(text.error().to_text()));
        message_->show();
        return;
    }
    import_text(qs(*text), path);
}

std::vector<Table> BoxPage::tables() const {
    const AnswerPointer answer = session_.answer();
    if (!answer) return {};
    Table table;
    table.name = "links";
    table.columns = {{"from", "", false},      {"to", "", false},        {"kind", "", false},
                     {"generation", "", true}, {"width", "", true},      {"write GB/s", "", true},
                     {"read GB/s", "", true},  {"latency ns", "", true}, {"source", "", false}};
    const model::Machine& machine = answer->scenario.machine;
    for (const model::MachineLink& link : machine.links) {
        const auto cell = [](const QString& text) { return Cell{text, {}, {}, false, 0}; };
        table.rows.push_back({cell(qs(machine.nodes[static_cast<std::size_t>(link.a)].id)),
                              cell(qs(machine.nodes[static_cast<std::size_t>(link.b)].id)), cell(qs(to_name(link.kind))),
                              cell(QString::number(link.generation)), cell(QString::number(link.width)),
                              cell(fixed(link.forward.write_gb_s, 2)), cell(fixed(link.forward.read_gb_s, 2)),
                              cell(fixed(link.latency_ns, 0)), cell(qs(link.source))});
    }
    return {table};
}

}  // namespace draftboard::gui
