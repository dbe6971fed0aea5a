package cluster

import "bytes"

// Slots is how many hash slots a cluster has.
const Slots = 16384

// crcTable is CRC16/XMODEM (polynomial 0x1021), which Redis uses for slots.
var crcTable = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		t[i] = crc
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
	crc := uint16(0)
	for _, b := range key {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^b]
	}
	return int(crc) % Slots
}
