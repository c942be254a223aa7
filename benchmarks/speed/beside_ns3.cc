// Flows of UDP packets through two levels of routers, by ns-3: what benchmarks/speed/beside_ns3.py compares with.
//
// Every host of a rack sends at a constant rate to the host of the same number in the next rack, over one spine.
#include <ctime>
#include <iostream>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

static uint64_t hops = 0;

static void Passed(Ptr<const Packet>) { hops++; }

int main(int argc, char *argv[])
{
    uint32_t racks = 8, hosts = 8, bytes = 1500, queue = 100;
    double rate = 2e9, link = 10e9, seconds = 0.01, delay = 2e-6;
    CommandLine line;
    line.AddValue("racks", "", racks);
    line.AddValue("hosts", "", hosts);
    line.AddValue("bytes", "of a frame", bytes);
    line.AddValue("queue", "packets", queue);
    line.AddValue("rate", "of a flow, bits per second", rate);
    line.AddValue("link", "bits per second", link);
    line.AddValue("seconds", "", seconds);
    line.AddValue("delay", "of a link, seconds", delay);
    line.Parse(argc, argv);

    NodeContainer spine(1), leaves(racks), servers(racks * hosts);
    InternetStackHelper internet;
    internet.InstallAll();
    PointToPointHelper cable;
    cable.SetDeviceAttribute("DataRate", DataRateValue(DataRate(static_cast<uint64_t>(link))));
    cable.SetChannelAttribute("Delay", TimeValue(Seconds(delay)));
    cable.SetQueue("ns3::DropTailQueue", "MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, queue)));
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    TrafficControlHelper disciplines;
    auto join = [&](Ptr<Node> a, Ptr<Node> b) {
        NetDeviceContainer ends = cable.Install(a, b);
        Ipv4InterfaceContainer given = addresses.Assign(ends);
        disciplines.Uninstall(ends);
        for (uint32_t i = 0; i < 2; i++)
            ends.Get(i)->TraceConnectWithoutContext("PhyTxEnd", MakeCallback(&Passed));
        addresses.NewNetwork();
        return given.GetAddress(1);
    };
    for (uint32_t rack = 0; rack < racks; rack++)
        join(spine.Get(0), leaves.Get(rack));
    std::vector<Ipv4Address> address;
    for (uint32_t i = 0; i < racks * hosts; i++)
        address.push_back(join(leaves.Get(i / hosts), servers.Get(i)));
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    const uint16_t port = 9000;
    ApplicationContainer sinks =
        PacketSinkHelper("ns3::UdpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port)).Install(servers);
    const uint32_t payload = bytes - 30;    // what IPv4, UDP and PPP add
    for (uint32_t i = 0; i < racks * hosts; i++) {
        OnOffHelper sends("ns3::UdpSocketFactory", InetSocketAddress(address[(i + hosts) % (racks * hosts)], port));
        sends.SetConstantRate(DataRate(static_cast<uint64_t>(rate * payload / bytes)), payload);
        sends.Install(servers.Get(i)).Start(NanoSeconds(100 * i));
    }
    Simulator::Stop(Seconds(seconds));
    std::clock_t began = std::clock();
    Simulator::Run();
    double processor = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
    uint64_t arrived = 0;
    for (uint32_t i = 0; i < sinks.GetN(); i++)
        arrived += DynamicCast<PacketSink>(sinks.Get(i))->GetTotalRx() / payload;
    std::cout << "{\"arrived\": " << arrived << ", \"hops\": " << hops << ", \"processor_s\": " << processor << "}\n";
    Simulator::Destroy();
}
