package cluster

import "bytes"

// Slots is how many hash slots a cluster has.
const Slots = 16384

// crcTables are for CRC16/XMODEM (polynomial 0x1021), which Redis uses for slots: the k-th has what a byte adds that
// k bytes follow. So eight bytes are looked up at once, where one after the other would each wait for the one before.
var crcTables = func() (t [8][256]uint16) {
	for i := range t[0] {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		t[0][i] = crc
	}
	for k := range t[1:] {
		for i, crc := range t[k] {
			t[k+1][i] = crc<<8 ^ t[0][crc>>8]
		}
	}
	return t
}()

// Slot is the hash slot of a key: of what stands between the first '{' and the next '}', if that is not empty, else of
// the whole key.
func Slot(key []byte) int {
	if open := bytes.IndexByte(key, '{'); open >= 0 {
		if length := bytes.IndexByte(key[open+1:], '}'); length > 0 {
			key = key[open+1 : open+1+length]
		}
	}
	crc, t := uint16(0), &crcTables
	for len(key) >= 8 {
		crc = t[7][byte(crc>>8)^key[0]] ^ t[6][byte(crc)^key[1]] ^ t[5][key[2]] ^ t[4][key[3]] ^
			t[3][key[4]] ^ t[2][key[5]] ^ t[1][key[6]] ^ t[0][key[7]]
		key = key[8:]
	}
	for _, b := range key {
		crc = crc<<8 ^ t[0][byte(crc>>8)^b]
	}
	return int(crc) % Slots
}

// areSlots says that a cluster has the slots from first to last.
func areSlots[N int | int64](first, last N) bool { return first >= 0 && last < Slots }
