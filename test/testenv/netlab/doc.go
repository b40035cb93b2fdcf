// Package netlab runs a whole cluster in network namespaces, so that tests and the demo can send
// real packets through it: a real control plane, the simulated cloud, underlay-ccm, and machines,
// each with underlay-agent, kube-proxy and pods that the real CNI plugins attached.
//
// On the simulated cloud:
//
//	 API server, underlay-ccm, simulator        the namespace that Enter makes
//	=======+=================+===========      mgmt       192.168.250.0/24
//	       |                 |
//	 +-----+-----+     +-----+-----+
//	 | machine 1 |     | machine 2 | ...        pods hang below, by ptp
//	 +--+-----+--+     +--+-----+--+
//	    |     |private    |     |
//	    |     +---[ cloud router ]              10.0.0.0/8, by the network's routes
//	    |public           |
//	    +----[ internet ]-+                     192.0.2.N/32, 2001:db8:0:N::/64
//	               |
//	          [ outside ]                       198.51.100.2, 2001:db8:ffff::2
//
// The private interface has a /32, all traffic uses the gateway, and there is no IPv6. The cloud
// router forwards by the current route table of the simulated network, and drops packets of a
// server with a source that is neither its own address nor in a prefix routed to it. The internet
// assigns each server its address and its /64, and drops packets with other sources. It routes
// floating IPs to their servers: it resolves an IPv4 address by ARP, as users have observed in the
// cloud (github.com/metallb/metallb/issues/637), and routes an IPv6 prefix.
//
// A lab may have a vSwitch: a segment of dedicated servers, 10.1.0.0/16 with an MTU of 1400, whose
// gateway to the network is the cloud router. They have a public interface like cloud servers, with
// 2001:db8:d:N::/64, and "vswitch" in place of "private". A simulated Robot lists them, their
// public addresses and their membership of the vSwitch; the simulated cloud has the subnet, no
// server in it, and the owners of their public addresses. Failover addresses of the account are
// routed to the main address of the server that they are switched to, after Robot has completed the
// switch.
//
// Each load balancer of the simulated cloud is a host too, from its creation to its removal: on the
// internet with its public addresses, and at the cloud router while it is in the network. Package
// balancer carries its connections, those to IPv6 addresses from its own address, or from the
// simulator's IPv6Source, which belongs to the newest load balancer.
//
// On bare metal there is no cloud: the machines' interface "uplink" is on one segment, 192.0.2.0/24
// and 2001:db8:1::/64, whose .1 and ::1 are the gateways. External hosts can be connected to it,
// machines can be disconnected from the segment or from the API server, and powered off. Claims of
// addresses there are recorded with their senders.
//
// A CloudLab is a cloud without a cluster: every server that a client creates through the API of
// the simulated cloud gets a namespace, gets and loses its cables as it is attached and detached,
// and runs its user data. Its packets are treated by the profile of a measured cloud. The program
// that measures is on the external host.
//
// Programs reach the API server by the interfaces "mgmt", so that a fault on a path of pods doesn't
// affect the control plane, and the other way round.
//
// A program calls Enter first and then runs in a namespace of its own. Nothing is ever created in
// the namespace that it was started in, and namespaces have no names: the kernel removes with the
// process everything that Stop doesn't, also after a panic. Without root, Enter returns ErrNotRoot.
//
// In a test's main function:
//
//	if err := netlab.Enter(); err != nil { ... }         // once, before anything
//	err := options.Binaries(ctx, folder)                  // builds the programs
//	f, err := netlab.Start(ctx, options)                  // until machines are ready
//	defer f.Stop()
//	p, err := f.RunPod(ctx, "a", "one", labels)           // echoes on EchoPort
//	answer, err := netlab.Ask(ctx, p.Namespace, "tcp", q) // its name, and the source
//	s, err := netlab.StartStream(ctx, p.Namespace, q, tick)
//	traffic := s.Stop()                                   // sent, lost, sources, the gap
//
// No kubelet restarts the programs of a machine here: a kube-proxy that exits because its Node has
// other addresses stays down until RestartProxy, and an agent whose Node was deleted needs
// StartAgent, because its token was deleted with the Node.
//
// The facts about the cloud's network are those of the simulator; interfaces and addresses of its
// servers are those of its documentation on cloud networks.
package netlab
