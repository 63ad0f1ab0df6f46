-- parts: what the sections of the report are made of: tables, lists, figures with their data.
local html = require "report.html"
local ordered = require "base.ordered"
local template = require "base.template"
local text = require "base.text"

local parts = {}

local render = template.embedded "templates/report/page.html"

parts.render = render

local NUMBER = { [true] = text.block ' class="n"', [false] = text.block "" }

-- A row as one text: rows are many, and a page of a large model stays small.
local function row_of(cells, columns)
    local out = {}
    for i, cell in ipairs(cells) do
        local kind = columns[i].number and ' class="n"' or columns[i].wrap and ' class="wrap"' or ""
        out[i] = ("<td%s>%s</td>"):format(kind, text.is(cell) and cell.text or html.text(cell).text)
    end
    return text.block("<tr>" .. table.concat(out) .. "</tr>")
end

-- Tables that scroll can be reached by the keyboard.
local FOCUS = text.block ' tabindex="0"'

--- A table. columns: { title, number = stands at the right, wrap = may have several lines } of each. rows: arrays of
--- texts, or of values of templates as they are.
function parts.table(columns, rows, caption)
    return render("table", { t = { caption = caption and html.text(caption) or false, focus = FOCUS,
        head = ordered.collect(columns, function(c)
            return { text = html.text(c.title), kind = NUMBER[c.number or false] }
        end),
        rows = ordered.collect(rows, function(row) return row_of(row, columns) end) } })
end

--- A bar as long as a share of 1, and the share in words.
function parts.bar(share)
    return text.block(('<span class="meter"><span class="bar" style="width:%.1f%%"></span></span> %.1f %%'):format(
        100 * math.min(math.max(share, 0), 1), 100 * share))
end

function parts.paragraph(words) return render("paragraph", { words = html.text(words) }) end

function parts.list(items) return render("list", { items = ordered.collect(items, html.text) }) end

--- Lines of text in a type of equal widths.
function parts.text(lines) return render("text", { lines = html.text(table.concat(lines, "\n")) }) end

--- Names of colours: items { colour, text }.
function parts.legend(items)
    return render("legend", { items = ordered.collect(items, function(item)
        return { colour = item.colour, text = html.text(item.text) }
    end) })
end

-- A cell of a CSV file.
local function csv_cell(value)
    local cell = math.type(value) == "float" and ("%.5g"):format(value) or tostring(value)
    return cell:find '[",\n]' and '"' .. cell:gsub('"', '""') .. '"' or cell
end

--- Rows of a CSV file, the first one its heads, as the end of a data link.
function parts.csv(rows)
    local lines = ordered.collect(rows, function(row) return table.concat(ordered.collect(row, csv_cell), ",") end)
    return text.block((table.concat(lines, "\n"):gsub("[^%w,._~/:-]", function(sign)
        return ("%%%02X"):format(sign:byte())
    end)) .. "%0A")
end

--- A figure. f: { id, title, kind = class or nil, picture = value of templates, caption, csv = rows, table = value of
--- templates or nil }.
function parts.figure(f)
    return render("figure", { f = { id = text.block(f.id), title = html.text(f.title),
        kind = text.block(f.kind or "wide"), picture = f.picture, caption = html.text(f.caption),
        csv = parts.csv(f.csv), table = f.table or false } })
end

return parts
