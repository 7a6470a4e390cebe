// SPDX-License-Identifier: Apache-2.0
#include "text/chat_follow.h"

#include "runtime/base/error.h"
#include "text/chat_expression.h"
#include "text/chat_names.h"

namespace vkf::text {

namespace {

using Kind = Value::Kind;

/// The template itself refuses the messages.
struct Raised {
    std::string text;
};

class Follower {
public:
    Follower(const std::vector<JinjaPiece>& pieces, const std::string& bos, bool system)
        : pieces_(pieces), names_(bos, system) {}

    void run(std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            const JinjaPiece& piece = pieces_[i];
            if (piece.kind == JinjaPiece::Kind::statement) {
                i = run_statement(i);
            } else {
                const Value value =
                    piece.kind == JinjaPiece::Kind::text ? literal_value(piece.code) : value_of(piece.code);
                write(piece.code, value);
            }
        }
    }

    ChatText take() { return std::move(written_); }

private:
    Value value_of(std::string_view code) {
        ChatExpression expression(code, names_);
        Value value = expression.value();
        expression.expect_end();
        return value;
    }

    /// The value, where it is none that raise_exception() gave.
    static Value raised_or(Value value) {
        if (value.is(Kind::raised)) {
            throw Raised{std::string(value.characters())};
        }
        return value;
    }

    void write(std::string_view code, const Value& value) {
        if (raised_or(value).is(Kind::undefined)) {  // of which Jinja writes nothing
            return;
        }
        if (!value.is(Kind::text)) {
            throw Error("it writes \"" + shown(code) + "\", which is not known before the messages are");
        }
        names_.spend_on(value);
        append(written_, value.text);
    }

    /// Returns the piece that was the last of the statement's.
    std::size_t run_statement(std::size_t index) {
        const std::string_view code = pieces_[index].code;
        ChatExpression statement(code, names_);
        const std::string_view word = statement.name();
        if (word == "if") {
            return run_if(index);
        }
        if (word == "for") {
            return run_for(index, statement);
        }
        if (word == "set" && pieces_[index].next == 0) {
            set(statement);
            return index;
        }
        if (word == "macro") {  // what it writes where it is called is not known
            names_.set(statement.name(), unknown_value());
            return pieces_[index].next;
        }
        if (word == "generation" || word == "endgeneration") {  // marks for training
            return index;
        }
        throw Error("it has {% " + shown(code) + " %}");
    }

    /// The piece that ends the block of which this is a part.
    std::size_t block_end(std::size_t index) {
        while (pieces_[index].next != 0) {
            names_.spend(1);
            index = pieces_[index].next;
        }
        return index;
    }

    std::size_t run_if(std::size_t index) {
        const std::size_t end = block_end(index);
        for (; index != end; index = pieces_[index].next) {
            const std::string_view code = pieces_[index].code;
            ChatExpression statement(code, names_);
            Truth chosen = Truth::yes;
            if (statement.name() != "else") {
                chosen = truth(raised_or(statement.value()));
            }
            statement.expect_end();
            if (chosen == Truth::unknown) {
                may_run(index + 1, end, code);
                return end;
            }
            if (chosen == Truth::yes) {
                run(index + 1, pieces_[index].next);
                return end;
            }
        }
        return end;
    }

    std::size_t run_for(std::size_t index, ChatExpression& statement) {
        const std::size_t behind = pieces_[index].next, end = block_end(index);
        const std::string_view target = statement.name();
        const bool one = !statement.skip(",");
        Value list;
        if (one) {
            statement.expect("in");
            list = raised_or(statement.value_before_if());
        }
        const bool known = list.is(Kind::list) || list.is(Kind::generator) || list.is(Kind::undefined);
        if (!one || !statement.at_end() || !known) {
            may_run(index + 1, end, pieces_[index].code);
            return end;
        }
        Value loop;
        loop.kind = Kind::loop;
        loop.items = list.items;
        for (const Value& item : list.items) {
            names_.enter_loop();
            names_.set(target, item);
            names_.set("loop", loop);
            run(index + 1, behind);
            names_.leave_loop();
            ++loop.number;
        }
        if (list.items.empty() && behind != end) {  // its else
            names_.enter_loop();
            run(behind + 1, end);
            names_.leave_loop();
        }
        return end;
    }

    void set(ChatExpression& statement) {
        const std::string_view name = statement.name();
        if (!statement.skip(".")) {
            statement.expect("=");
            Value value = raised_or(statement.value());
            statement.expect_end();
            names_.set(name, std::move(value));
            return;
        }
        const std::string_view member = statement.name();
        statement.expect("=");
        Value value = raised_or(statement.value());
        statement.expect_end();
        set_member(name, member, std::move(value));
    }

    void set_member(std::string_view name, std::string_view member, Value value) {
        const Value space = names_.get(name);
        if (!space.is(Kind::space)) {
            throw Error("it sets " + std::string(name) + "." + std::string(member) + ", of what is no namespace");
        }
        names_.set_in_space(space, member, std::move(value));
    }

    /// Makes what these pieces set unknown, where it is not known whether they run. They may write
    /// nothing.
    void may_run(std::size_t begin, std::size_t end, std::string_view condition) {
        for (std::size_t i = begin; i < end; ++i) {
            const JinjaPiece& piece = pieces_[i];
            names_.spend(piece.code.size() + 1);
            if (piece.kind != JinjaPiece::Kind::statement || piece.code.find("raise_exception") != piece.code.npos) {
                throw Error("it writes \"" + shown(piece.code) + "\" under \"" + shown(condition) +
                            "\", which is not known before the messages are");
            }
            ChatExpression statement(piece.code, names_);
            const std::string_view word = statement.name();
            if (word == "set") {
                const std::string_view name = statement.name();
                if (statement.skip(".")) {
                    set_member(name, statement.name(), unknown_value());
                } else {
                    statement.expect("=");
                    names_.set(name, unknown_value());
                }
            } else if (word != "if" && word != "elif" && word != "else" && word != "endif" && word != "for" &&
                       word != "endfor") {
                throw Error("it has {% " + shown(piece.code) + " %} under \"" + shown(condition) + "\"");
            }
        }
    }

    const std::vector<JinjaPiece>& pieces_;
    ChatNames names_;
    ChatText written_;
};

}  // namespace

ChatWritten follow_template(const std::vector<JinjaPiece>& pieces, const std::string& bos, bool system) {
    Follower follower(pieces, bos, system);
    try {
        follower.run(0, pieces.size());
    } catch (const Raised& raised) {
        return {{}, raised.text};
    }
    return {follower.take(), std::nullopt};
}

}  // namespace vkf::text
