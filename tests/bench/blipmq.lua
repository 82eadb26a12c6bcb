-- BlipMQ for tshark, as a user would write it: one PDU a frame, the fields of PUBLISH.
local p = Proto("blipmqbench", "BlipMQ")
local f_type = ProtoField.uint8("blipmqbench.type", "Type")
local f_id = ProtoField.uint64("blipmqbench.id", "Id")
local f_qos = ProtoField.uint8("blipmqbench.qos", "QoS")
local f_topic = ProtoField.string("blipmqbench.topic", "Topic")
local f_body = ProtoField.bytes("blipmqbench.body", "Body")
p.fields = { f_type, f_id, f_qos, f_topic, f_body }
local function pdu(tvb, pinfo, tree)
    local t = tree:add(p, tvb())
    t:add(f_type, tvb(4, 1))
    t:add(f_id, tvb(5, 8))
    if tvb(4, 1):uint() == 3 then
        local n = tvb(14, 2):uint()
        t:add(f_qos, tvb(13, 1))
        t:add(f_topic, tvb(16, n))
        t:add(f_body, tvb(16 + n))
    end
    return tvb:len()
end
function p.dissector(tvb, pinfo, tree)
    dissect_tcp_pdus(tvb, tree, 4, function(b, _, at) return b(at, 4):uint() + 4 end, pdu)
    return tvb:len()
end
DissectorTable.get("tcp.port"):add(5555, p)
